"""Money through the native API. Sums are whole micro-units; `*_csv` answer text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.sdk.nouns import Thing
from muster.sdk.transport import Transport


class Billing:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def balance(self, account_id: str | None = None) -> Thing:
        return self._get("", {"account_id": account_id})

    def statement(self, **asked: Any) -> Thing:
        """By account_id, project_id, resource_id; since, until; by day, resource, project or entry."""
        return self._get("/statement", asked)

    def statement_csv(self, **asked: Any) -> str:
        return self._text("/statement.csv", asked)

    def entries(self, account_id: str | None = None) -> Iterator[Thing]:
        """The ledger, newest first, page after page."""
        cursor = None
        while True:
            page = self._get("/entries", {"account_id": account_id, "cursor": cursor})
            yield from page["items"]
            cursor = page["next_cursor"]
            if not cursor:
                return

    def prices(self, region: str | None = None) -> list[Thing]:
        items: list[Thing] = self._get("/prices", {"region": region})["items"]
        return items

    def prices_csv(self, region: str | None = None) -> str:
        return self._text("/prices.csv", {"region": region})

    def top_up(self, account_id: str, micro: int, memo: str = "") -> Thing:
        body = {"account_id": account_id, "micro": micro, "memo": memo}
        answer: Thing = self._transport.call("POST", "/billing/top-ups", body=body).json()
        return answer

    def budgets(self) -> list[Thing]:
        items: list[Thing] = self._get("/budgets", {})["items"]
        return items

    def set_budget(self, project_id: str, monthly_micro: int) -> Thing:
        body = {"monthly_micro": monthly_micro}
        answer: Thing = self._transport.call("PUT", f"/billing/budgets/{project_id}", body=body).json()
        return answer

    def remove_budget(self, project_id: str) -> None:
        self._transport.call("DELETE", f"/billing/budgets/{project_id}")

    def verify(self) -> Thing:
        return self._get("/verify", {})

    def _get(self, place: str, query: Mapping[str, Any]) -> Thing:
        answer: Thing = self._transport.call("GET", f"/billing{place}", query=query).json()
        return answer

    def _text(self, place: str, query: Mapping[str, Any]) -> str:
        return self._transport.call("GET", f"/billing{place}", query=query).text
