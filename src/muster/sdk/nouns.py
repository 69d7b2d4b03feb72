"""The nouns of the native API as collections: list, get, find by name or id, and what each noun can do besides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from muster.sdk.errors import ApiError
from muster.sdk.transport import Transport

Thing: TypeAlias = dict[str, Any]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAGE_LIMIT = 200


def if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


class Readable:
    """`name` is the noun in a sentence; `path` its place under the base."""

    def __init__(self, transport: Transport, path: str, name: str) -> None:
        self._transport = transport
        self._path = path
        self.name = name

    def page(self, *, cursor: str | None = None, limit: int | None = None, **filters: Any) -> Thing:
        """One page as the server gives it: items and next_cursor."""
        query = {"cursor": cursor, "limit": limit, **filters}
        answer: Thing = self._transport.call("GET", self._path, query=query).json()
        return answer

    def list(self, *, limit: int | None = None, **filters: Any) -> Iterator[Thing]:
        """Every item, page after page; `limit` ends it early."""
        left, cursor = limit, None
        while left is None or left > 0:
            page = self.page(cursor=cursor, limit=min(left or PAGE_LIMIT, PAGE_LIMIT), **filters)
            yield from page["items"][:left]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def get(self, id: str) -> Thing:
        answer: Thing = self._transport.call("GET", f"{self._path}/{id}").json()
        return answer

    def find(self, name_or_id: str, **filters: Any) -> Thing:
        """By id when it looks like one, else by name; a name that means two things is refused."""
        if UUID.fullmatch(name_or_id):
            return self.get(name_or_id)
        named = [thing for thing in self.list(name=name_or_id, **filters) if thing.get("name") == name_or_id]
        if not named:
            raise ApiError(404, "not_found", f"there is no {self.name} {name_or_id}")
        if len(named) > 1:
            ids = ", ".join(thing["id"] for thing in named)
            raise ApiError(
                409, "ambiguous", f"{len(named)} {self.name}s are called {name_or_id}", hint=f"use an id: {ids}"
            )
        return named[0]


class Creatable(Readable):
    def create(self, **fields: Any) -> Thing:
        answer: Thing = self._transport.call("POST", self._path, body=said(fields)).json()
        return answer


class Deletable(Creatable):
    def delete(self, id: str, *, if_version: int | None = None) -> None:
        self._transport.call("DELETE", f"{self._path}/{id}", headers=if_match(if_version))


class Patchable(Creatable):
    def update(self, id: str, *, if_version: int | None = None, **fields: Any) -> Thing:
        """Only the fields given are changed."""
        headers = if_match(if_version)
        answer: Thing = self._transport.call("PATCH", f"{self._path}/{id}", body=said(fields), headers=headers).json()
        return answer


class Reservations(Deletable, Patchable):
    """Made, given another end, cancelled."""


class SecurityGroups(Deletable):
    def set_rules(self, id: str, *, name: str, rules: list[Thing], if_version: int | None = None) -> Thing:
        body = {"name": name, "rules": rules}
        answer: Thing = self._transport.call(
            "PUT", f"{self._path}/{id}", body=body, headers=if_match(if_version)
        ).json()
        return answer


class Hosts(Readable):
    def find(self, name_or_id: str, **filters: Any) -> Thing:
        """The server itself takes either."""
        return self.get(name_or_id)

    def import_hosts(self, hosts: list[Thing]) -> list[Thing]:
        """Made or changed by name; answered in the order given."""
        items: list[Thing] = self._transport.call("POST", self._path, body={"hosts": hosts}).json()["items"]
        return items

    def cordon(self, id: str, reason: str) -> Thing:
        answer: Thing = self._transport.call("POST", f"{self._path}/{id}/cordon", body={"reason": reason}).json()
        return answer

    def uncordon(self, id: str) -> Thing:
        answer: Thing = self._transport.call("POST", f"{self._path}/{id}/uncordon").json()
        return answer


class Pools(Deletable):
    def add_hosts(self, id: str, hosts: list[str], count: int = 0) -> Thing:
        """These, and so many of those that are free."""
        body = {"hosts": hosts, "count": count}
        answer: Thing = self._transport.call("POST", f"{self._path}/{id}/hosts", body=body).json()
        return answer

    def remove_host(self, id: str, host: str) -> Thing:
        answer: Thing = self._transport.call("DELETE", f"{self._path}/{id}/hosts/{host}").json()
        return answer


class Listing(Readable):
    """A part of the catalogue: its ids are its names."""

    def find(self, name_or_id: str, **filters: Any) -> Thing:
        for thing in self.list(**filters):
            if thing["id"] == name_or_id:
                return thing
        raise ApiError(404, "not_found", f"there is no {self.name} {name_or_id}")

    def put(self, id: str, fields: Mapping[str, Any]) -> Thing:
        body = {name: value for name, value in fields.items() if name not in ("id", "version", "number")}
        answer: Thing = self._transport.call("PUT", f"{self._path}/{id}", body=body).json()
        return answer

    def remove(self, id: str) -> None:
        self._transport.call("DELETE", f"{self._path}/{id}")


class Faults(Creatable):
    def clear(self, id: str) -> None:
        self._transport.call("DELETE", f"{self._path}/{id}")


def said(fields: Mapping[str, Any]) -> Thing:
    """None means "not said" everywhere in this API."""
    return {name: value for name, value in fields.items() if value is not None}
