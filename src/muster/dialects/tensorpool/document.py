"""docs/dialects/tensorpool.md, made from the tables by `python -m muster.dialects.tensorpool.document`.

Leans on fields, words and refusals. A test holds the page against what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from muster.dialects.tensorpool import words
from muster.dialects.tensorpool.fields import CHOSEN, REFUSED, REQUESTS
from muster.dialects.tensorpool.refusals import MISSHAPEN, STATUS
from muster.errors import CALL_ERRORS

HEAD: Final = """# TensorPool

<!-- Made by `python -m muster.dialects.tensorpool.document`; do not edit. -->

Muster speaks TensorPool's wire, so that its own command line `tp` (0.0.9) works unchanged. Set two variables
(`muster env tensorpool` prints them):

    export TENSORPOOL_ENGINE=http://127.0.0.1:8787
    export TENSORPOOL_KEY=...

No slash at the end. Then `tp cluster create 8xH100 -n 2 --wait`, `tp ssh INSTANCE_ID`, `tp job push FILE CLUSTER_ID`
as ever. Null means absent, a field nobody knows is passed over, and every answer has a `message`, which is what `tp`
prints, beside structured fields. The OpenAPI page is at `/openapi.json`.
"""


def page() -> str:
    return "\n".join([HEAD, *_spoken(), *_chosen(), *_words(), *_refusals()]) + "\n"


def _spoken() -> Iterator[str]:
    yield "## Spoken\n"
    for section in REQUESTS:
        yield f"### {section.title}\n"
        yield _rows("field", "meaning", ((f"`{name}`", said) for name, said in section.fields.items()))


def _chosen() -> Iterator[str]:
    yield "## What the provider does not say, and what we chose\n"
    yield _rows("", "", CHOSEN)
    yield "## Refused\n"
    yield _rows("", "", REFUSED)


def _words() -> Iterator[str]:
    yield "## Words\n"
    tables: tuple[tuple[str, Mapping[Any, str]], ...] = (
        ("Clusters", words.CLUSTER_STATUS),
        ("Instances", words.INSTANCE_STATUS),
        ("Storage", words.STORAGE_STATUS),
        ("Requests", words.REQUEST_STATUS),
    )
    for title, known in tables:
        yield f"### {title}\n"
        yield _rows("ours", "theirs", ((str(ours), theirs) for ours, theirs in known.items()))


def _refusals() -> Iterator[str]:
    yield "## Refusals\n"
    yield f"A request that cannot be read is a {MISSHAPEN} with FastAPI's `detail` beside the `message`.\n"
    yield _rows("code", "HTTP", ((error.code, str(STATUS[error.code])) for error in CALL_ERRORS))


def _rows(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {left} | {right} |", "|---|---|", *(f"| {one} | {two} |" for one, two in rows)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
