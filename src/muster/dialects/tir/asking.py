"""Reading a request: its body (JSON or a form, null as absent), numbers in paths and queries, and where it is about.

Leans on contracts.http, wire and the house's services. *Law.* Every mistake names its field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from muster.contracts.http import Call
from muster.core.house import House
from muster.dialects.tir.wire import Body, RuleItem
from muster.errors import Invalid, NotFound
from muster.model.access import ReservedIp, SecurityGroup, SshKey
from muster.model.accounts import Account, Project
from muster.model.base import Noun
from muster.model.volumes import Volume

_PLACE: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING: Final = re.compile(r"required field `(\w+)`")
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.A)
_FORM: Final = "application/x-www-form-urlencoded"

B = TypeVar("B", bound=Body)
N = TypeVar("N", bound=Noun)
O = TypeVar("O", SshKey, SecurityGroup, ReservedIp, Volume)  # noqa: E741 - an owned thing


def read(call: Call, body: type[B]) -> B:
    """Form values are words, so that numbers are read from them; JSON says what it means."""
    form = call.headers.get("content-type", "").startswith(_FORM)
    try:
        said = dict(parse_qsl(call.body.decode())) if form else msgspec.json.decode(call.body or b"{}")
        if not isinstance(said, dict):
            raise Invalid("the body is a JSON object", field="body")
        return msgspec.convert(_without_null(said), body, strict=not form)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise Invalid(f"the body is not JSON: {error}", field="body") from None


def read_rules(call: Call) -> tuple[RuleItem, ...]:
    """PUT rules takes a bare array."""
    try:
        return msgspec.convert(_without_null(msgspec.json.decode(call.body or b"null")), tuple[RuleItem, ...])
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}", field="body") from None


def _without_null(said: Any) -> Any:
    if isinstance(said, dict):
        return {name: _without_null(value) for name, value in said.items() if value is not None}
    return [_without_null(item) for item in said] if isinstance(said, list) else said


def _wrong(told: str) -> Invalid:
    """msgspec says "... - at `$.no_of_nodes`", or names a missing field in its sentence."""
    place = _PLACE.search(told)
    sentence = told[: place.start()] if place else told
    missing = _MISSING.search(sentence)
    path = place["path"] if place else ""
    if missing:
        path = f"{path}.{missing[1]}".lstrip(".")
        sentence = "This field is required"
    return Invalid(f"{sentence[:1].lower()}{sentence[1:]}", field=path or "body")


# --- numbers ------------------------------------------------------------------------------------------------------


def number_in_path(call: Call, name: str) -> int:
    """A path with anything else leads nowhere."""
    said = call.params[name]
    if not _NUMBER.fullmatch(said):
        raise NotFound(f"there is nothing with the id {said[:40]}")
    return int(said)


def number_in_query(call: Call, name: str) -> int | None:
    said = call.asked(name)
    if said is None or said == "":
        return None
    if not _NUMBER.fullmatch(said):
        raise Invalid("a whole number is wanted here", field=name)
    return int(said)


def count(call: Call, name: str, default: int, *, most: int) -> int:
    said = number_in_query(call, name)
    if said is None:
        return default
    if not 1 <= said <= most:
        raise Invalid(f"this is a number from 1 to {most}", field=name)
    return said


# --- where --------------------------------------------------------------------------------------------------------


async def project_of(house: House, call: Call) -> Project:
    """The project in the path, as before the teams went, or in the query."""
    await _check_iam(house, call)
    in_path = "project_id" in call.params
    number = number_in_path(call, "project_id") if in_path else number_in_query(call, "project_id")
    if number is None:
        raise Invalid("this field is required", field="project_id", hint="send ?project_id=")
    try:
        project = await house.numbers.find(call.actor, Project, number)
    except NotFound as error:
        raise NotFound(error.message, field="project_id") from None
    if "team_id" in call.params:
        team = await team_of(house, call)
        if team.id != project.account_id:
            raise NotFound(f"team {team.number} has no project {number}", field="project_id")
    return project


async def own_project(house: House, call: Call) -> Project:
    """For what belongs to the account there: the project named, else the key's own."""
    if "project_id" in call.params or call.asked("project_id") or call.actor.project_id is None:
        return await project_of(house, call)
    await _check_iam(house, call)
    return await house.accounts.project(call.actor, call.actor.project_id)


async def team_of(house: House, call: Call) -> Account:
    """Accounts, where TIR had teams."""
    try:
        return await house.numbers.find(call.actor, Account, number_in_path(call, "team_id"))
    except NotFound:
        raise NotFound(f"there is no team {call.params['team_id'][:40]}", field="team_id") from None


async def _check_iam(house: House, call: Call) -> None:
    """Acting in another's account is acting with a key of that account."""
    number = number_in_query(call, "active_iam")
    if number is None:
        return
    try:
        await house.numbers.find(call.actor, Account, number)
    except NotFound:
        raise Invalid(f"this key does not act for the account {number}", field="active_iam") from None


async def location_of(house: House, call: Call) -> str:
    regions = (await house.catalog.current()).regions
    said = call.asked("location")
    if not said:
        raise Invalid("this field is required", field="location", hint="send ?location=")
    if said not in regions:
        raise Invalid(
            f"there is no location {said[:80]}", field="location", hint=f"one of {', '.join(sorted(regions))}"
        )
    return said


# --- things named in a body ---------------------------------------------------------------------------------------


async def named(house: House, call: Call, project: Project, noun: type[O], number: int, field: str) -> O:
    """The project's thing with this number; whoever names another's has made a mistake in this field."""
    try:
        found = await house.numbers.find(call.actor, noun, number)
    except NotFound as error:
        raise Invalid(error.message, field=field) from None
    if found.project_id != project.id:
        raise Invalid(f"project {project.number} has none with the id {number}", field=field)
    return found


async def all_named(
    house: House, call: Call, project: Project, noun: type[O], numbers: Sequence[int], field: str
) -> list[O]:
    return [await named(house, call, project, noun, number, field) for number in dict.fromkeys(numbers)]
