"""Things by the small numbers that some wires know them by: one number per noun, given at its insert.

Leans on accounts' rights. *Law.* Others' things do not exist, here as everywhere.
"""

from __future__ import annotations

from typing import Final

from muster.contracts.store import Find, Store
from muster.core.accounts.rights import sees
from muster.errors import NotFound
from muster.model.access import ReservedIp, SecurityGroup, SshKey
from muster.model.accounts import Account, Actor, Project
from muster.model.base import N, Noun
from muster.model.clusters import Cluster
from muster.model.volumes import Volume

WORDS: Final[dict[type[Noun], str]] = {
    Account: "account",
    Project: "project",
    SshKey: "ssh key",
    SecurityGroup: "security group",
    ReservedIp: "reserved ip",
    Volume: "volume",
    Cluster: "cluster",
}
NUMBER_MAX: Final = 2**53


class Numbers:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, actor: Actor, noun: type[N], number: int) -> N:
        """The one with this number, if this actor sees it and it still is."""
        known = 0 < number <= NUMBER_MAX
        found = await self._store.find(Find(noun, equals={"number": number}, limit=1)) if known else []
        if not found or not _visible(actor, found[0]):
            raise NotFound(f"there is no {WORDS[noun]} {number}")
        return found[0]


def _visible(actor: Actor, noun: Noun) -> bool:
    match noun:
        case Account():
            return actor.is_operator or noun.id == actor.account_id
        case Project():
            return sees(actor, noun.id)
        case Cluster() | Volume():
            return noun.gone_at is None and sees(actor, noun.project_id)
        case SshKey() | SecurityGroup() | ReservedIp():
            return sees(actor, noun.project_id)
    return False
