"""One cluster's money from end to end, through the real door, the real engine and a virtual clock: refused, paid for,
served, out of credit, brought back, forgotten about, gone. No faults here: those are the histories'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from muster.clock import SeededEntropy
from muster.core.demo import demo_catalog
from muster.dialects.native.translate import stamp
from muster.engine.engine import Pace
from muster.model.accounts import SYSTEM, Role
from muster.model.base import DAY, HOUR, MINUTE
from muster.model.billing import EntryKind
from muster.substrates.simulated.world import SimulatedWorld
from muster.testing.simulation.chaos import Chaos
from muster.testing.simulation.image import Files, Image
from muster.testing.simulation.loop import VirtualClock, VirtualLoop, run_virtual
from muster.testing.simulation.users import control_host, gpu_host

DOLLAR = 1_000_000
PACE = Pace(look_again_ms=HOUR, full_pass_ms=6 * HOUR, idle_ms=MINUTE)
"""Slow: days pass here, and nothing may need to be looked for in them."""


class Town:
    """A house with an account that pays in advance, its tenant, and an engine that can be stopped."""

    def __init__(self, directory: Path, loop: VirtualLoop) -> None:
        self.clock = VirtualClock(loop)
        world = SimulatedWorld.open(":memory:", self.clock, seed=1, time_scale=1.0)
        self.files = Files(directory / "muster.db", world)
        self.entropy = SeededEntropy(1)
        self.image = self.boot()
        self.key = ""
        self.account = ""

    def boot(self) -> Image:
        calm = Chaos(self.clock, self.entropy, lambda text: None, crash_chance=0, freeze_chance=0, freeze_seconds=0)
        return Image(self.files, self.clock, self.entropy, calm, pace=PACE, api=True)

    async def found(self) -> None:
        house = self.image.house
        await house.catalog.put_all(SYSTEM, demo_catalog(self.clock.now()))
        await house.hosts.import_hosts(
            SYSTEM, [*(gpu_host(f"gpu-{n}", "leaf-0") for n in range(4)), control_host("control-0")]
        )
        account = await house.accounts.create_account(SYSTEM, name="lab")
        project = await house.accounts.create_project(SYSTEM, account_id=account.id, name="lab")
        _, self.key = await house.accounts.create_key(SYSTEM, name="k", role=Role.ADMIN, project_id=project.id)
        self.account = account.id
        self.image.start()

    async def outage(self, hours: float) -> None:
        await self.image.drop()
        await self.clock.sleep(hours * 3600)
        self.image = self.boot()
        self.image.start()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.image.call(method, f"/muster/v1{path}", self.key, body)

    async def top_up(self, dollars: int) -> None:
        await self.image.house.billing.top_up(SYSTEM, self.account, dollars * DOLLAR)

    async def until(self, path: str, met: Callable[[Any], bool], within: int = HOUR) -> Any:
        for _ in range(within // MINUTE):
            status, seen = await self.call("GET", path)
            if met(seen if status == 200 else None):
                return seen
            await self.clock.sleep(60)
        raise AssertionError(f"{path} never came to it: {seen}")

    async def phase(self, id: str, phase: str, within: int = HOUR) -> Any:
        return await self.until(f"/clusters/{id}", lambda seen: seen is not None and seen["phase"] == phase, within)


def live(directory: Path, story: Callable[[Town], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def told() -> None:
        town = Town(directory, loop)
        await town.found()
        try:
            await story(town)
            verdict = await town.image.house.billing.verify(SYSTEM)
            assert verdict.holds, verdict.problems
        finally:
            await town.image.drop()
            town.files.world.close()

    run_virtual(told(), loop)


WISH = {"name": "demo", "type": "slurm", "gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8"}


def test_refused_paid_for_out_of_credit_and_back(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        status, refusal = await town.call("POST", "/clusters", WISH)
        assert (status, refusal["code"]) == (402, "insufficient_balance")
        assert refusal["details"]["missing_micro"] == refusal["details"]["needed_micro"] == 24 * 23_920_000
        await town.top_up(600)
        status, cluster = await town.call("POST", "/clusters", WISH)
        assert status == 201
        await town.call("POST", "/volumes", {"name": "data", "region": "us-central-8", "size_gib": 10})
        await town.phase(cluster["id"], "ready")
        stopped = await town.phase(cluster["id"], "unfunded", within=2 * DAY)
        _, balance = await town.call("GET", "/billing")
        assert balance["state"] == "unfunded"
        assert -23_920_000 // 60 < balance["balance_micro"] <= 0, "never more than a minute below"
        await town.until("/capacity", lambda seen: any(row["free_nodes"] == 4 for row in seen["items"]))
        status, _ = await town.call("POST", "/clusters", {**WISH, "name": "another"})
        assert status == 402
        await town.top_up(100)
        back = await town.phase(cluster["id"], "ready")
        assert [moved["phase"] for moved in back["history"]][-8:-6] == ["unfunded", "network"]
        assert stopped["id"] == back["id"]
        _, events = await town.call("GET", f"/events?resource_id={cluster['id']}&limit=200")
        types = [event["type"] for event in events["items"]]
        assert types.index("cluster.unfunded") < types.index("cluster.refunded")

    live(tmp_path, story)


def test_an_outage_is_the_operators_and_the_grace_ends_it_all(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await town.top_up(580)
        _, cluster = await town.call("POST", "/clusters", WISH)
        _, volume = await town.call("POST", "/volumes", {"name": "data", "region": "us-central-8", "size_gib": 10})
        await town.phase(cluster["id"], "ready")
        await town.outage(hours=40)
        await town.phase(cluster["id"], "unfunded")
        entries = await town.image.house.billing.entries(SYSTEM, account_id=town.account)
        overrun = sum(entry.micro for entry in entries.items if entry.kind is EntryKind.OVERRUN)
        charged = sum(entry.micro for entry in entries.items if entry.kind is EntryKind.USAGE)
        _, balance = await town.call("GET", "/billing")
        assert overrun > 15 * 23_920_000
        assert balance["balance_micro"] == 580 * DOLLAR + overrun - charged
        assert -23_920_000 // 60 < balance["balance_micro"] <= 0
        await town.until(f"/clusters/{cluster['id']}", lambda seen: seen is None, within=4 * DAY)
        await town.until(f"/volumes/{volume['id']}", lambda seen: seen is None, within=HOUR)

    live(tmp_path, story)


def test_a_reserved_cluster_is_paid_for_at_once_and_runs_without_credit(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        wish = {**WISH, "billing": "reserved", "duration_days": 30}
        prices = await town.image.house.billing.prices(region="us-central-8")
        [term] = [p.micro for p in prices if (p.item, p.committed_days) == ("8xH100_SXM", 30)]
        await town.top_up(term // DOLLAR)
        status, refusal = await town.call("POST", "/clusters", wish)
        assert (status, refusal.get("details", {}).get("needed_micro")) == (402, term), refusal
        await town.top_up(1)
        status, cluster = await town.call("POST", "/clusters", wish)
        assert status == 201
        ready = await town.phase(cluster["id"], "ready")
        _, balance = await town.call("GET", "/billing")
        assert balance["ledger_micro"] == (term // DOLLAR + 1) * DOLLAR - term
        assert balance["micro_per_hour"] == 0, "what is paid for is not metered"
        later = stamp(int(town.clock.now()) + 40 * DAY)
        status, refusal = await town.call("PATCH", f"/clusters/{cluster['id']}", {"ends_at": later})
        assert (status, refusal["code"]) == (402, "insufficient_balance")
        await town.top_up(10_000)
        status, _ = await town.call("PATCH", f"/clusters/{cluster['id']}", {"ends_at": later})
        assert status == 202
        entries = await town.image.house.billing.entries(SYSTEM, account_id=town.account)
        paid = sorted(entry.micro for entry in entries.items if entry.kind is EntryKind.CONTRACT)
        assert len(paid) == 2
        assert paid[1] == term
        assert 9 * 24 * 23_920_000 < paid[0] < 11 * 24 * 23_920_000
        assert ready["phase"] == "ready"

    live(tmp_path, story)


def window(town: Town, days: int) -> dict[str, Any]:
    """A day of one host, so many days from now."""
    starts_at = stamp(town.clock.now() + days * DAY)
    return {"gpu_type": "H100_SXM", "gpus": 8, "region": "us-central-8", "hours": 24, "starts_at": starts_at}


async def contracts(town: Town) -> tuple[list[int], list[int]]:
    """What was paid in advance, and what was paid back; both proven."""
    entries = (await town.image.house.billing.entries(SYSTEM, account_id=town.account)).items
    assert (await town.image.house.billing.verify(SYSTEM)).holds
    paid = [entry.micro for entry in entries if entry.kind is EntryKind.CONTRACT]
    return sorted(paid), sorted(entry.micro for entry in entries if entry.kind is EntryKind.REFUND)


def test_a_window_costs_whether_it_is_used_or_not(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await town.top_up(10)
        status, refusal = await town.call("POST", "/reservations", window(town, 2))
        assert (status, refusal["code"]) == (402, "insufficient_balance")
        price = refusal["details"]["needed_micro"]
        assert price == 24 * 23_920_000
        await town.top_up(10_000)
        _, unused = await town.call("POST", "/reservations", window(town, 2))
        assert unused["price_micro"] == price
        _, longer = await town.call(
            "PATCH", f"/reservations/{unused['id']}", {"ends_at": stamp(town.clock.now() + 4 * DAY)}
        )
        assert longer["state"] == "booked"
        assert await contracts(town) == ([price, price], [])
        await town.clock.sleep(2.5 * 86_400)
        status, over = await town.call("DELETE", f"/reservations/{unused['id']}")
        assert over["state"] == "cancelled"
        assert await contracts(town) == ([price, price], []), "its time had begun"

    live(tmp_path, story)


def test_a_window_given_up_before_its_start_is_paid_back(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await town.top_up(10_000)
        _, held = await town.call("POST", "/reservations", window(town, 2))
        price = held["price_micro"]
        await town.call("DELETE", f"/reservations/{held['id']}")
        assert await contracts(town) == ([price], [price])
        _, drawn = await town.call("POST", "/reservations", window(town, 3))
        wish = {**WISH, "gpus": 8, "quote_id": drawn["id"]}
        status, cluster = await town.call("POST", "/clusters", wish)
        assert (status, cluster["phase"]) == (201, "scheduled")
        assert await contracts(town) == ([price, price], [price]), "drawn from, it is paid for already"
        await town.call("DELETE", f"/clusters/{cluster['id']}")
        await town.until(f"/clusters/{cluster['id']}", lambda seen: seen is None)
        assert await contracts(town) == ([price, price], [price, price])
        _, account = await town.call("GET", "/billing")
        assert account["balance_micro"] == 10_000 * DOLLAR

    live(tmp_path, story)


def test_a_budget_holds_for_what_is_paid_in_advance(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await town.top_up(10_000)
        _, projects = await town.call("GET", "/projects")
        await town.image.house.billing.set_budget(SYSTEM, projects["items"][0]["id"], 100 * DOLLAR)
        status, refusal = await town.call("POST", "/reservations", window(town, 2))
        assert (status, refusal["code"]) == (403, "quota_exceeded")
        assert refusal["details"]["left_micro"] == 100 * DOLLAR

    live(tmp_path, story)
