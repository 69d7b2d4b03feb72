"""Committed prices: the whole term is paid at once, for exactly what the plan said; without credit there is none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from .conftest import CLUSTERS, Tenant


@pytest.mark.parametrize("days", [30, 90, 365])
def test_a_commitment_is_paid_upfront_and_ends(
    new_tenant: Callable[..., Tenant], operator: httpx.Client, days: int
) -> None:
    tenant = new_tenant(postpaid=False)
    plan = next(plan for plan in tenant.sku()["plans"] if plan["committed_days"] == days)
    cost = round(plan["unit_price"] * 1_000_000)
    body = tenant.body(sku_item_price_id=plan["sku_item_price_id"])
    tenant.bad("POST", CLUSTERS, "credits", json=body)

    top_up(tenant, operator, cost - 1)
    tenant.bad("POST", CLUSTERS, "credits", json=body)
    top_up(tenant, operator, 1)
    made = tenant.good("POST", CLUSTERS, code=201, json=body)
    assert (made["committed_days"], made["sku_item_price_id"]) == (days, plan["sku_item_price_id"])
    running = tenant.running(made["id"])
    assert balance(tenant) == 0
    since = datetime.fromisoformat(running["ends_at"]) - timedelta(days=days)
    assert abs(since - datetime.fromisoformat(running["created_at"])) < timedelta(minutes=5)
    tenant.good("DELETE", f"{CLUSTERS}{made['id']}/")
    assert balance(tenant) == 0  # no refund


def account_of(tenant: Tenant) -> str:
    return str(tenant.native.get("/muster/v1/billing").json()["account_id"])


def top_up(tenant: Tenant, operator: httpx.Client, micro: int) -> None:
    said: dict[str, Any] = {"account_id": account_of(tenant), "micro": micro}
    reply = operator.post("/muster/v1/billing/top-ups", json=said)
    assert reply.status_code == 201, reply.text


def balance(tenant: Tenant) -> int:
    return int(tenant.native.get("/muster/v1/billing").json()["balance_micro"])
