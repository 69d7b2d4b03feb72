"""The SDK, three versions of it, sync and async."""

from __future__ import annotations

import pytest

from .conftest import LAST_2, NEWEST, VERSIONS, Tenant, Wire, drive


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_method_and_every_field(tenant: Tenant, version: str, kind: str) -> None:
    drive(tenant, version, "every_method.py", kind)
