"""What can be had, on the native wire: one shelf of handlers for each noun of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.native import views, wire
from muster.dialects.native.asking import if_match, read, text
from muster.dialects.native.replies import answer, listing, nothing
from muster.dialects.native.translate import instant, shown
from muster.errors import NotFound
from muster.model.base import SECOND, Noun

PRICE_NOTICE: Final = 10 * SECOND
"""A price without a date begins so much later, when every process has heard of it."""


class Shelf:
    """One noun of the catalogue. `place` is both its path and its dictionary in the Catalog (with _ for -)."""

    def __init__(
        self, house: House, place: str, noun: type[Noun], body: type[wire.Body], view: type[views.View]
    ) -> None:
        self._house = house
        self._place = place
        self._noun = noun
        self._body = body
        self._view = view

    async def list(self, call: Call) -> Reply:
        """The whole shelf; ?region= and ?name= (an id) narrow it."""
        region, name = text(call, "region"), text(call, "name")
        return listing(
            shown(noun, self._view)
            for id, noun in sorted((await self._all()).items())
            if (name is None or id == name) and (region is None or getattr(noun, "region", region) == region)
        )

    async def get(self, call: Call) -> Reply:
        id = call.params["id"]
        noun = (await self._all()).get(id)
        if noun is None:
            raise NotFound(f"there is nothing called {id} in {self._place}")
        return answer(shown(noun, self._view), tag=noun.version)

    async def put(self, call: Call) -> Reply:
        said = asdict(read(call, self._body))
        if "valid_from" in said:
            said["valid_from"] = instant(said["valid_from"]) or self._house.clock.now() + PRICE_NOTICE
        noun = msgspec.convert({**said, "id": call.params["id"]}, self._noun)
        kept = await self._house.catalog.put(call.actor, noun, if_version=if_match(call))
        return answer(shown(kept, self._view), tag=kept.version)

    async def remove(self, call: Call) -> Reply:
        await self._house.catalog.remove(call.actor, self._noun, call.params["id"], if_version=if_match(call))
        return nothing()

    async def _all(self) -> Mapping[str, Any]:
        shelf: Mapping[str, Any] = getattr(await self._house.catalog.current(), self._place.replace("-", "_"))
        return shelf
