"""The native dialect: one visible table of everything it answers, and the manners around it.

Leans on the handlers beside it. Each row says what it takes and gives, and the OpenAPI page is made from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.contracts.http import Call, Handler, Reply, Route, SocketRoute
from muster.core.house import House
from muster.dialects.native import billing as money
from muster.dialects.native import calendar, pools, problem, views, wire
from muster.dialects.native.access import Access
from muster.dialects.native.accounts import Accounts
from muster.dialects.native.catalog import Shelf
from muster.dialects.native.clusters import Clusters
from muster.dialects.native.events import Events
from muster.dialects.native.hosts import Fleet
from muster.dialects.native.openapi import OpenApi, build
from muster.dialects.native.reference import Reference
from muster.dialects.native.replies import BASE
from muster.dialects.native.volumes import Volumes
from muster.dialects.native.watch import Watch
from muster.errors import CallError, Unauthenticated
from muster.model.catalog import GpuType, Image, InstanceType, Price, Region

PAGE: Final = ("cursor", "limit")
MINE: Final = ("project_id", "name", *PAGE)
WAIT: Final = ("wait",)


def row(
    method: str,
    path: str,
    handle: Handler,
    summary: str,
    *,
    gives: Any = None,
    takes: type[wire.Body] | None = None,
    status: int = 200,
    query: Sequence[str] = (),
    also: Sequence[int] = (),
    media: str = "application/json",
    open: bool = False,
    fault_free: bool = False,
) -> Route:
    """One line of the table. `gives` and `takes` are structs; `also` are refusals that few other rows know."""
    return Route(
        method,
        BASE + path,
        handle,
        name=f"{method} {path}",
        open=open,
        describe={
            "summary": summary,
            "gives": gives,
            "takes": takes,
            "status": status,
            "query": query,
            "also": also,
            "media": media,
            "fault_free": fault_free,
        },
    )


def account_rows(h: Accounts) -> Sequence[Route]:
    v, w = views, wire
    many = v.Listing
    return (
        row("GET", "/whoami", h.whoami, "Who this key is", gives=v.Whoami),
        row("GET", "/accounts", h.accounts, "Accounts", gives=many[v.Account], query=("name", *PAGE)),
        row(
            "POST", "/accounts", h.create_account, "Make an account", takes=w.NewAccount, gives=v.Account, status=201
        ),
        row("GET", "/accounts/{id}", h.account, "One account", gives=v.Account),
        row("GET", "/projects", h.projects, "Projects", gives=many[v.Project], query=("account_id", "name", *PAGE)),
        row("POST", "/projects", h.create_project, "Make a project", takes=w.NewProject, gives=v.Project, status=201),
        row("GET", "/projects/{id}", h.project, "One project", gives=v.Project),
        row(
            "PATCH",
            "/projects/{id}",
            h.update_project,
            "Rename, or set the quota",
            takes=w.ProjectChange,
            gives=v.Project,
        ),
        row("GET", "/members", h.members, "Members of a project", gives=many[v.Member], query=MINE),
        row("POST", "/members", h.add_member, "Add a member", takes=w.NewMember, gives=v.Member, status=201),
        row("GET", "/members/{id}", h.member, "One member", gives=v.Member),
        row("DELETE", "/members/{id}", h.remove_member, "Remove a member and revoke its keys", status=204),
        row("GET", "/keys", h.keys, "API keys", gives=many[v.Key], query=MINE),
        row(
            "POST",
            "/keys",
            h.create_key,
            "Make a key; its secret is told once",
            takes=w.NewKey,
            gives=v.KeyMade,
            status=201,
        ),
        row("GET", "/keys/{id}", h.key, "One key", gives=v.Key),
        row("DELETE", "/keys/{id}", h.revoke_key, "Revoke a key", gives=v.Key),
    )


def catalog_rows(house: House) -> Sequence[Route]:
    shelves: tuple[tuple[str, type, type[wire.Body], type[views.View], str], ...] = (
        ("regions", Region, wire.RegionBody, views.Region, "region"),
        ("gpu-types", GpuType, wire.GpuTypeBody, views.GpuType, "GPU type"),
        ("instance-types", InstanceType, wire.InstanceTypeBody, views.InstanceType, "instance type"),
        ("images", Image, wire.ImageBody, views.Image, "image"),
        ("prices", Price, wire.PriceBody, views.Price, "price"),
    )
    rows: list[Route] = []
    for place, noun, body, view, word in shelves:
        shelf = Shelf(house, place, noun, body, view)
        many: Any = views.Listing[view]  # type: ignore[valid-type]
        rows += (
            row("GET", f"/{place}", shelf.list, f"Every {word}", gives=many, query=("region", "name")),
            row("GET", f"/{place}/{{id}}", shelf.get, f"One {word}", gives=view),
            row("PUT", f"/{place}/{{id}}", shelf.put, f"Make or change a {word}", takes=body, gives=view),
            row("DELETE", f"/{place}/{{id}}", shelf.remove, f"Remove a {word} nobody uses", status=204),
        )
    return rows


def fleet_rows(h: Fleet) -> Sequence[Route]:
    v, w = views, wire
    hosts: Any = v.Listing[v.Host]
    return (
        row("GET", "/fleet", h.fleet, "What the fleet is made of", gives=v.Fleet),
        row("GET", "/capacity", h.capacity, "Free and total nodes by shape", gives=v.Listing[v.Room]),
        row("GET", "/hosts", h.hosts, "Hosts", gives=hosts, query=("region", "role", "pool_id", *PAGE)),
        row("POST", "/hosts", h.import_hosts, "Import hosts", takes=w.HostImport, gives=hosts, status=201),
        row("GET", "/hosts/{id}", h.host, "One host, by id or name", gives=v.Host),
        row("POST", "/hosts/{id}/cordon", h.cordon, "Put nothing new on it", takes=w.Cordon, gives=v.Host),
        row("POST", "/hosts/{id}/uncordon", h.uncordon, "Use it again", gives=v.Host),
        row("GET", "/faults", h.faults, "Faults in force", gives=v.Listing[v.Fault], also=(422,), fault_free=True),
        row(
            "POST",
            "/faults",
            h.inject,
            "Make something go wrong (simulated fleets)",
            takes=w.NewFault,
            gives=v.Fault,
            status=201,
            also=(422,),
            fault_free=True,
        ),
        row("DELETE", "/faults/{id}", h.clear, "End a fault", status=204, also=(422,), fault_free=True),
    )


def pool_rows(h: pools.Pools) -> Sequence[Route]:
    p, one = pools, "/pools/{id}"
    whole: dict[str, Any] = {"gives": p.PoolView}
    return (
        row(
            "GET",
            "/pools",
            h.list,
            "Pools of hosts set apart",
            gives=views.Listing[p.PoolView],
            query=("name", *PAGE),
        ),
        row("POST", "/pools", h.create, "Make a pool", takes=p.NewPool, status=201, **whole),
        row("GET", one, h.get, "One pool", **whole),
        row("DELETE", one, h.delete, "Remove a pool without hosts", status=204),
        row("POST", f"{one}/hosts", h.add, "Set free hosts apart", takes=p.PoolHosts, also=(422,), **whole),
        row("DELETE", f"{one}/hosts/{{host_id}}", h.remove, "Give a free host back to all", **whole),
    )


def calendar_rows(h: calendar.Calendar) -> Sequence[Route]:
    c, many = calendar, views.Listing
    asked: dict[str, Any] = {"gives": c.Reservation, "status": 201, "also": (402, 422)}
    one = "/reservations/{id}"
    return (
        row(
            "GET",
            "/availability",
            h.availability,
            "What could be had, day by day",
            gives=many[c.Free],
            query=("region", "gpu_type", "days"),
        ),
        row("POST", "/quotes", h.quote, "The earliest start and its price, held ten minutes", takes=c.Ask, **asked),
        row("GET", "/quotes/{id}", h.get, "One quote", gives=c.Reservation),
        row("DELETE", "/quotes/{id}", h.cancel, "Let a quote go", gives=c.Reservation),
        row(
            "GET",
            "/reservations",
            h.list,
            "Reservations, newest first",
            gives=many[c.Reservation],
            query=("project_id", *PAGE),
        ),
        row("POST", "/reservations", h.reserve, "Promise a window", takes=c.Ask, **asked),
        row("GET", one, h.get, "One reservation", gives=c.Reservation),
        row("PATCH", one, h.extend, "Give it another end", takes=c.Extension, gives=c.Reservation, also=(422,)),
        row("DELETE", one, h.cancel, "Cancel it", gives=c.Reservation),
        row("GET", "/calendar-lines", h.lines, "How much may be promised", gives=many[c.Line]),
        row("PATCH", "/calendar-lines/{id}", h.set_policy, "Set the share", takes=c.Policy, gives=c.Line),
    )


def cluster_rows(h: Clusters) -> Sequence[Route]:
    v, w = views, wire
    one = "/clusters/{id}"
    wish: dict[str, Any] = {"gives": v.Cluster, "status": 202}
    return (
        row("GET", "/clusters", h.list, "Clusters", gives=v.Listing[v.Cluster], query=MINE),
        row(
            "POST",
            "/clusters",
            h.create,
            "Make a cluster",
            takes=w.NewCluster,
            gives=v.Cluster,
            status=201,
            also=(402, 422),
        ),
        row("GET", one, h.get, "One cluster; waits until it is at rest if asked", gives=v.Cluster, query=WAIT),
        row("PATCH", one, h.update, "Resize or reconfigure", takes=w.ClusterChange, also=(402, 422), **wish),
        row("DELETE", one, h.delete, "Delete; force does not wait for jobs", query=("force",), **wish),
        row("POST", f"{one}/pause", h.pause, "Release the compute, keep the rest", also=(422,), **wish),
        row("POST", f"{one}/resume", h.resume, "Take compute again", also=(402, 422), **wish),
        row("POST", f"{one}/restart", h.restart, "Boot nodes anew in place", takes=w.RestartBody, **wish),
        row("POST", f"{one}/address", h.attach_ip, "Lead a reserved IP here", takes=w.AddressBody, **wish),
        row("DELETE", f"{one}/address/{{ip_id}}", h.detach_ip, "Take a reserved IP off", **wish),
        row("GET", f"{one}/nodes", h.nodes, "Its nodes", gives=v.Listing[v.Node]),
        row("GET", f"{one}/explain", h.explain, "Why it is as it is", gives=v.Explained),
        row("GET", f"{one}/access", h.access, "How to get in", gives=v.Access),
        row(
            "GET",
            f"{one}/kubeconfig",
            h.kubeconfig,
            "A kubeconfig (a secret)",
            gives=str,
            media="application/yaml",
            also=(409,),
        ),
        row("POST", f"{one}/mounts", h.attach, "Mount a volume", takes=w.MountBody, also=(422,), **wish),
        row("DELETE", f"{one}/mounts/{{volume_id}}", h.detach, "Unmount a volume", **wish),
    )


def volume_rows(h: Volumes) -> Sequence[Route]:
    v, w = views, wire
    one = "/volumes/{id}"
    return (
        row("GET", "/volumes", h.list, "Volumes", gives=v.Listing[v.Volume], query=MINE),
        row(
            "POST",
            "/volumes",
            h.create,
            "Make a volume",
            takes=w.NewVolume,
            gives=v.Volume,
            status=201,
            also=(402, 422),
        ),
        row(
            "GET", one, h.get, "One volume; waits until it is at rest if asked", gives=v.VolumeWithMounts, query=WAIT
        ),
        row("PATCH", one, h.grow, "Grow it", takes=w.VolumeChange, gives=v.Volume, status=202, also=(402, 422)),
        row("DELETE", one, h.delete, "Delete it", gives=v.Volume, status=202),
    )


def access_rows(h: Access) -> Sequence[Route]:
    v, w = views, wire
    group = "/security-groups/{id}"
    return (
        row("GET", "/ssh-keys", h.ssh_keys, "SSH keys", gives=v.Listing[v.SshKey], query=MINE),
        row("POST", "/ssh-keys", h.add_ssh_key, "Save an SSH key", takes=w.NewSshKey, gives=v.SshKey, status=201),
        row("GET", "/ssh-keys/{id}", h.ssh_key, "One SSH key", gives=v.SshKey),
        row("DELETE", "/ssh-keys/{id}", h.remove_ssh_key, "Forget an SSH key", status=204),
        row("GET", "/security-groups", h.groups, "Security groups", gives=v.Listing[v.SecurityGroup], query=MINE),
        row(
            "POST",
            "/security-groups",
            h.create_group,
            "Make a security group",
            takes=w.NewSecurityGroup,
            gives=v.SecurityGroup,
            status=201,
        ),
        row("GET", group, h.group, "One security group", gives=v.SecurityGroup),
        row("PUT", group, h.set_rules, "Replace its rules", takes=w.RulesBody, gives=v.SecurityGroup),
        row("DELETE", group, h.remove_group, "Remove one nobody uses", status=204),
        row(
            "GET",
            "/reserved-ips",
            h.ips,
            "Reserved addresses",
            gives=v.Listing[v.ReservedIp],
            query=("project_id", "region", *PAGE),
        ),
        row(
            "POST",
            "/reserved-ips",
            h.reserve,
            "Reserve an address",
            takes=w.NewReservedIp,
            gives=v.ReservedIp,
            status=201,
            also=(422,),
        ),
        row("GET", "/reserved-ips/{id}", h.ip, "One reserved address", gives=v.ReservedIp),
        row("DELETE", "/reserved-ips/{id}", h.release, "Give an address back", status=204),
    )


def event_rows(h: Events) -> Sequence[Route]:
    v = views
    about = ("kind", "resource_id")
    return (
        row(
            "GET",
            "/events",
            h.list,
            "The audit log",
            gives=v.Listing[v.Event],
            query=("after", "newest_first", "project_id", *about, *PAGE),
        ),
        row(
            "GET",
            "/changes",
            h.changes,
            "Server-sent events; resumes by Last-Event-ID",
            gives=str,
            query=("after", *about),
            media="text/event-stream",
        ),
        row(
            "GET",
            "/requests",
            h.requests,
            "Asynchronous operations, newest first",
            gives=v.Listing[v.Request],
            query=("project_id", "resource_id", *PAGE),
        ),
        row(
            "GET",
            "/requests/{id}",
            h.request,
            "One operation; waits for its end if asked",
            gives=v.Request,
            query=WAIT,
        ),
    )


def billing_rows(h: money.Billing) -> Sequence[Route]:
    m, many = money, views.Listing
    budget = "/billing/budgets/{id}"
    period = ("account_id", "project_id", "resource_id", "since", "until", "by")
    sheet: dict[str, Any] = {"gives": str, "media": money.CSV}
    return (
        row("GET", "/billing", h.balance, "How an account stands", gives=m.AccountBalance, query=("account_id",)),
        row("GET", "/billing/statement", h.statement, "What was charged", gives=m.StatementView, query=period),
        row("GET", "/billing/statement.csv", h.statement_csv, "What was charged, as CSV", query=period, **sheet),
        row(
            "GET",
            "/billing/entries",
            h.entries,
            "The ledger, newest first",
            gives=many[m.Entry],
            query=("account_id", *PAGE),
        ),
        row(
            "GET",
            "/billing/prices",
            h.prices,
            "Prices that hold or will",
            gives=many[views.Price],
            query=("region",),
        ),
        row("GET", "/billing/prices.csv", h.prices_csv, "Prices, as CSV", query=("region",), **sheet),
        row("GET", "/billing/verify", h.verify, "Charges proven from usage, anew", gives=m.Proof),
        row("POST", "/billing/top-ups", h.top_up, "Credit an account", takes=m.NewTopUp, gives=m.Entry, status=201),
        row("GET", "/billing/budgets", h.budgets, "Budgets of projects", gives=many[m.BudgetReport]),
        row("GET", budget, h.budget, "A project's budget", gives=m.BudgetReport),
        row("PUT", budget, h.set_budget, "Set a project's budget", takes=m.BudgetBody, gives=m.BudgetReport),
        row("DELETE", budget, h.remove_budget, "Lift a project's budget", status=204),
    )


class Native:
    """The dialect as the door is handed it."""

    name = "native"

    def __init__(self, house: House, watch: Watch) -> None:
        self._page = OpenApi(self.routes)
        reference = Reference(lambda: build(self.routes()))
        self._routes = (
            row("GET", "/openapi.json", self._page.serve, "This page, for machines", open=True, gives=dict),
            row("GET", "/docs", reference.serve, "This page, to read", open=True, gives=str, media="text/html"),
            *account_rows(Accounts(house)),
            *catalog_rows(house),
            *fleet_rows(Fleet(house)),
            *pool_rows(pools.Pools(house)),
            *calendar_rows(calendar.Calendar(house)),
            *cluster_rows(Clusters(house, watch)),
            *volume_rows(Volumes(house, watch)),
            *access_rows(Access(house)),
            *event_rows(Events(house, watch)),
            *billing_rows(money.Billing(house)),
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def sockets(self) -> Sequence[SocketRoute]:
        return ()

    def claims(self, path: str) -> bool:
        return path.startswith("/muster/")

    def credentials(self, headers: Mapping[str, str], query: str) -> str | None:
        said = headers.get("authorization")
        if said is None:
            return None
        if said[:7].lower() != "bearer ":
            raise Unauthenticated(
                "the Authorization header is not a bearer key", hint="send Authorization: Bearer KEY"
            )
        return said[7:].strip()

    def refuse(self, error: CallError, call: Call) -> Reply:
        return problem.refusal(error, call)

    def crash(self, call: Call) -> Reply:
        return problem.crash(call)
