"""Which fleet a home gets: what was asked, what it had, or what the machine can carry, with one sentence why not."""

from __future__ import annotations

import asyncio
import platform
from pathlib import Path

import pytest

from muster.app import local_fleet
from muster.clock import RealClock, RealEntropy
from muster.fleet_choice import settle_fleet
from muster.settings import BadSetting, default_home, read
from muster.store.sqlite import SqliteStore


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can carry no nodes, whoever runs the tests."""
    monkeypatch.setattr(platform, "system", lambda: "Plan 9")


@pytest.mark.usefixtures("elsewhere")
def test_an_unfit_machine_gets_the_simulated_fleet_and_one_sentence_why(tmp_path: Path) -> None:
    said: list[str] = []
    assert read({"home": str(tmp_path)}, {}).fleet == "auto"
    assert settle_fleet(read({"home": str(tmp_path)}, {}), said.append).fleet == "simulated"
    assert len(said) == 1
    assert said[0].startswith("simulated fleet: real nodes need Linux on x86_64; this is Plan 9")


@pytest.mark.usefixtures("elsewhere")
def test_what_was_asked_for_outright_and_cannot_be_had_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="no local fleet: real nodes need Linux"):
        settle_fleet(read({"home": str(tmp_path), "fleet": "local"}, {}), print)
    assert not (tmp_path / "fleet").exists(), "a fleet that never was is not remembered"


def test_a_home_keeps_its_fleet_silently(tmp_path: Path) -> None:
    said: list[str] = []
    for asked, wanted in (("simulated", "simulated"), ("auto", "simulated"), ("none", "none"), ("auto", "none")):
        settings = settle_fleet(read({"home": str(tmp_path), "fleet": asked}, {}), said.append)
        assert settings.fleet == wanted
    assert said == []


def test_the_systems_home_is_not_roots_own() -> None:
    assert default_home(root=True) == "/var/lib/muster"
    assert default_home(root=False) == "~/.muster"


def test_a_server_outlives_a_hostd_that_is_away(tmp_path: Path) -> None:
    async def told() -> None:
        store = SqliteStore.open(tmp_path / "m.db")
        fleet = local_fleet(read({"home": str(tmp_path), "fleet": "local"}, {}), RealClock(), RealEntropy(), store)
        assert fleet.listen is not None
        assert fleet.close is not None
        stop = asyncio.Event()
        listening = asyncio.create_task(fleet.listen(stop))
        done, _ = await asyncio.wait([listening], timeout=0.2)
        assert not done, "it waits for the next one"
        stop.set()
        await asyncio.wait_for(listening, 30)
        await fleet.close()
        await store.close()

    asyncio.run(told())
