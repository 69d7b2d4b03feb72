"""muster billing against a real server: refused without credit, topped up, stopped at zero, brought back, proven."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Shell

NODE_HOUR = 23_920_000


@pytest.fixture(scope="module")
def key(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tenant whose account pays in advance."""
    secret = tmp_path_factory.mktemp("keys") / "payer.key"
    shell.run("account", "create", "payer")
    shell.run("project", "create", "paid", "--account", "payer")
    words = ("--project", "paid", "--as-operator", "--secret-file", str(secret))
    shell.run("key", "create", "payer", *words)
    return secret.read_text().strip()


def until_phase(shell: Shell, key: str, phase: str, seconds: float = 30) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        cluster: dict[str, Any] = shell.json("cluster", "show", "paid", "--api-key", key)
        if cluster["phase"] == phase or time.monotonic() > deadline:
            assert cluster["phase"] == phase
            return cluster


def test_a_life_on_credit(shell: Shell, key: str) -> None:
    create = ("cluster", "create", "paid", "--gpus", "8", "--gpu-type", "H100_SXM", "--region", "us-central-8")
    refused = shell.run(*create, "--api-key", key, code=4).stderr
    assert "574.08 USD" in refused
    assert "0.00 USD" in refused

    topped = shell.json("billing", "top-up", "payer", "600", "--memo", "invoice 1")
    assert (topped["balance_micro"], topped["state"]) == (600_000_000, "funded")
    shell.run(*create, "--wait", "--api-key", key)
    balance = shell.json("billing", "show", "--api-key", key)
    assert balance["micro_per_hour"] == NODE_HOUR
    assert balance["runs_out_at"] is not None
    assert "runs out" in shell.run("billing", "show", "--account", "payer", "--as-operator").stdout

    shell.run("cluster", "delete", "paid", "--yes", "--wait", "--api-key", key)
    statement = shell.json("billing", "statement", "--api-key", key, "--by", "resource")
    [line] = statement["lines"]
    assert line["kind"] == "usage"
    assert line["micro"] == statement["charged_micro"] > 0
    rows = list(csv.DictReader(io.StringIO(shell.run("billing", "statement", "--api-key", key, "--csv").stdout)))
    assert [(row["resource_name"], int(row["micro"])) for row in rows] == [("paid", line["micro"])]
    after = shell.json("billing", "show", "--api-key", key)
    assert after["balance_micro"] == 600_000_000 - line["micro"] == after["ledger_micro"]


def test_a_spent_budget_stops_and_a_higher_one_brings_back(shell: Shell, key: str) -> None:
    create = ("cluster", "create", "paid", "--gpus", "8", "--gpu-type", "H100_SXM", "--region", "us-central-8")
    shell.run(*create, "--wait", "--api-key", key)
    shell.run("billing", "budget", "paid", "0.000001", "--api-key", key)
    until_phase(shell, key, "unfunded")
    [budget] = shell.json("billing", "budgets", "--api-key", key)
    assert budget["left_micro"] < 0
    shell.run("billing", "budget", "paid", "--none", "--yes", "--api-key", key)
    until_phase(shell, key, "ready")
    shell.run("cluster", "delete", "paid", "--yes", "--wait", "--api-key", key)


def test_prices_and_the_proof(shell: Shell, tmp_path: Path) -> None:
    prices = shell.json("billing", "prices", "--region", "Delhi")
    held = next(price for price in prices if price["item"] == "8xL40_PCIE" and price["billing"] == "on_demand")
    line = {"id": "l40-next", "item": "8xL40_PCIE", "region": "Delhi", "micro": held["micro"] + 1}
    file = tmp_path / "price.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in line.items()))
    shell.run("catalog", "put", "price", str(file))
    after = [price["id"] for price in shell.json("billing", "prices", "--region", "Delhi")]
    assert {held["id"], "l40-next"} <= set(after)
    assert shell.run("billing", "prices", "--csv").stdout.startswith("id,")
    line["id"] = held["id"]
    file.write_text("".join(f"{name}: {value}\n" for name, value in line.items()))
    assert "history" in shell.run("catalog", "put", "price", str(file), code=2).stderr

    proof = shell.json("billing", "verify")
    assert proof["holds"], proof["problems"]
    assert proof["clusters"] >= 2
    assert "everything adds up" in shell.run("billing", "verify").stdout
