"""What hostd is asked and what it answers: one JSON object per line, both ways.

Leans on the contracts' nouns. Laws: a verb is one of these classes and nothing else; every request gets one reply
with its number, or the connection ends; `changed` lines carry an owner and may come at any time.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from muster.contracts.hands import File
from muster.contracts.substrate import FabricWish, Fence, NodeWish, Owned, Seen, VolumeWish

LINE_MAX: Final = 16 << 20


class _Verb(msgspec.Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True):
    number: int = 0


class Hello(_Verb, frozen=True, kw_only=True, tag="hello"):
    """Who answers: home id, version of this protocol, the root file system in use."""


class Ensure(_Verb, frozen=True, kw_only=True, tag="ensure"):
    fence: Fence
    fabrics: tuple[FabricWish, ...] = ()
    volumes: tuple[VolumeWish, ...] = ()
    nodes: tuple[NodeWish, ...] = ()


class Observe(_Verb, frozen=True, kw_only=True, tag="observe"):
    keys: tuple[str, ...]


class EnsureAbsent(_Verb, frozen=True, kw_only=True, tag="ensure_absent"):
    keys: tuple[str, ...]
    fence: Fence


class ListOwned(_Verb, frozen=True, kw_only=True, tag="owned"):
    pass


class ListImages(_Verb, frozen=True, kw_only=True, tag="images"):
    """The root file systems that a node may have by name."""


class Run(_Verb, frozen=True, kw_only=True, tag="run"):
    node: str
    argv: tuple[str, ...]
    user: str = "root"
    stdin: str = ""
    env: dict[str, str] = {}
    seconds: float = 10.0


class Place(_Verb, frozen=True, kw_only=True, tag="place"):
    files: tuple[File, ...]
    generation: int
    fence: Fence


class Connect(_Verb, frozen=True, kw_only=True, tag="connect"):
    """Answered with a descriptor beside the line. `source` "" = the house itself, past the tenant's rules."""

    node: str
    port: int
    source: str = ""
    seconds: float = 5.0


class Hold(_Verb, frozen=True, kw_only=True, tag="hold"):
    fence: Fence


class KnockAt(_Verb, frozen=True, kw_only=True, tag="knock"):
    ports: tuple[tuple[str, int], ...]
    seconds: float = 1.0


class Watch(_Verb, frozen=True, kw_only=True, tag="watch"):
    """From now on this connection also gets `changed` lines."""


class Link(_Verb, frozen=True, kw_only=True, tag="link"):
    """Cut a node's link or mend it: for tests."""

    node: str
    up: bool


Verb: TypeAlias = (
    Hello
    | Ensure
    | Observe
    | EnsureAbsent
    | ListOwned
    | ListImages
    | Run
    | Place
    | Connect
    | Hold
    | KnockAt
    | Watch
    | Link
)


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    home_id: str
    protocol: int = 1
    rootfs: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int = 0
    error: str = ""  # class name of a DriverError; "" = all well
    because: str = ""
    changed: str = ""
    result: Any = None


class SeenAll(msgspec.Struct, frozen=True, kw_only=True):
    seen: dict[str, Seen]


class OwnedAll(msgspec.Struct, frozen=True, kw_only=True):
    owned: list[Owned]


decode_verb = msgspec.json.Decoder(Verb).decode
decode_answer = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.Encoder().encode
