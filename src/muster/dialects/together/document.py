"""docs/dialects/together.md, made from the tables by `python -m muster.dialects.together.document`.

Leans on fields, words and refusals. A test holds the page against what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from muster.dialects.together import words
from muster.dialects.together.asking import IGNORED
from muster.dialects.together.fields import ANSWERS, REQUESTS, Section
from muster.dialects.together.refusals import STATUS, TYPE, WORTH_RETRYING
from muster.errors import CALL_ERRORS

HEAD: Final = f"""# Together

<!-- Made by `python -m muster.dialects.together.document`; do not edit. -->

Muster speaks Together AI's wire for GPU clusters, current and legacy, so that its own SDK and command line work
unchanged. Set two variables (`muster env together` prints them):

    export TOGETHER_BASE_URL=http://127.0.0.1:8787
    export TOGETHER_API_KEY=...

The SDK 3.x appends `/v1/compute/...` to that by itself; for 2.x, and for the TypeScript client `together-ai` from npm
(its `client.beta.clusters`), add `/v1`. Either mistake is understood too. Their Terraform provider reads the same two
variables; [how to write its resources](../terraform.md).

Null means absent. A field that nobody knows is accepted and named in the header `{IGNORED}` and in the event. A field
that is known and cannot be honoured is refused in a sentence. A create that is repeated (same project, name and body,
within ten minutes) gets the first answer again; a 409 says by `x-should-retry` whether asking again can help.

For tools there is the same as OpenAPI 3.1: `python -m muster.dialects.together.openapi` prints it, and schemathesis
holds this wire against it.
"""


def page() -> str:
    return "\n".join([HEAD, *_sections("Requests", REQUESTS), *_sections("Answers", ANSWERS), *_tables()]) + "\n"


def _sections(title: str, sections: Sequence[Section]) -> Iterator[str]:
    yield f"## {title}\n"
    for section in sections:
        yield f"### {section.title}\n"
        yield _table(("field", "", "meaning"), ((f"`{f.name}`", f.kind, f.sentence) for f in section.fields))


def _tables() -> Iterator[str]:
    yield "## Words\n"
    yield "### Phases of a cluster\n"
    yield _table(
        ("phase", "status", "in phase_transitions", "legacy"),
        ((phase, words.STATUS[phase], words.PHASE[phase], words.LEGACY_STATUS[phase]) for phase in words.STATUS),
    )
    yield "A create that nobody has worked on yet is told as WaitingForControlPlaneNodes.\n"
    yield "### Phases of a node\n"
    yield _table(
        ("phase", "status", "in phase_transitions"),
        ((phase, words.NODE_STATUS[phase], words.NODE_PHASE[phase]) for phase in words.NODE_STATUS),
    )
    yield from _pairs("Volumes", words.VOLUME_STATUS)
    yield from _pairs("Remediation modes", words.MODE)
    yield from _pairs("Remediation states", words.STATE)
    yield "### Refusals\n"
    codes = [error.code for error in CALL_ERRORS]
    yield _table(
        ("code", "HTTP", "type", "worth retrying"),
        ((code, str(STATUS[code]), TYPE[STATUS[code]], _retry(code)) for code in codes),
    )


def _retry(code: str) -> str:
    return "yes" if code in WORTH_RETRYING or STATUS[code] in (429, 503) else "no"


def _pairs(title: str, table: Mapping[Any, str]) -> Iterator[str]:
    yield f"### {title}\n"
    yield _table(("ours", "theirs"), ((str(ours), theirs) for ours, theirs in table.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
