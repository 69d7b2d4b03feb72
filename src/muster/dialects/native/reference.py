"""The API as a page to read: the OpenAPI document in HTML, one file, no script, nothing from elsewhere.

Leans on the document alone, so that the page and the contract cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any, Final

from muster.contracts.http import Call, Reply

Document = dict[str, Any]

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2f6f4f }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem 1.5rem 4rem }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
nav { columns: 4 10rem; margin: 1rem 0 } code { font: 13px/1.4 ui-monospace, monospace }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .3rem .7rem }
details[open] { background: var(--soft) } summary { cursor: pointer } summary small { float: right; opacity: .75 }
.verb { display: inline-block; min-width: 4rem; font-weight: 600; color: var(--accent) }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 } caption { text-align: left; font-weight: 600 }
td, th { border-top: 1px solid var(--line); padding: .2rem .6rem .2rem 0; text-align: left; vertical-align: top }
"""


class Reference:
    """Built when first asked for, from the document as it is served."""

    def __init__(self, document: Callable[[], Document]) -> None:
        self._document = document
        self._page = b""

    async def serve(self, call: Call) -> Reply:
        if not self._page:
            self._page = page(self._document()).encode()
        return Reply(200, self._page, content_type="text/html")


def page(document: Document) -> str:
    info = document["info"]
    tags: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(path, verb, operation))
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a><br>' for tag in (*tags, "shapes"))
    rooms = "".join(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{"".join(rows)}' for tag, rows in tags.items())
    shapes = "".join(_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>{escape(info['description'])} Every call carries <code>Authorization: Bearer KEY</code> unless it says "
        f'open. The same for machines: <a href="openapi.json">openapi.json</a>.</p><nav>{links}</nav>{rooms}'
        f'<h2 id="shapes">shapes</h2>{shapes}</body></html>'
    )


def _operation(path: str, verb: str, operation: Document) -> str:
    open_to_all = " · open" if operation.get("security") == [] else ""
    body = operation.get("requestBody", {}).get("content", {})
    parts = [_table("Parameters", (_parameter(one) for one in operation["parameters"]))]
    parts += [f"<p>Body: {_type(content['schema'])}</p>" for content in body.values()]
    parts.append(_table("Answers", (_answer(status, said) for status, said in operation["responses"].items())))
    return (
        f'<details id="{operation["operationId"]}"><summary><span class="verb">{verb.upper()}</span>'
        f"<code>{escape(path)}</code><small>{escape(operation['summary'])}{open_to_all}</small></summary>"
        f"{''.join(parts)}</details>"
    )


def _parameter(said: Document) -> tuple[str, str, str]:
    where = f"{said['in']}, needed" if said["required"] else said["in"]
    return f"<code>{escape(said['name'])}</code>", f"{_type(said['schema'])} · {where}", said.get("description", "")


def _answer(status: str, said: Document) -> tuple[str, str, str]:
    kinds = [f"{escape(media)}: {_type(content['schema'])}" for media, content in said.get("content", {}).items()]
    return f"<code>{status}</code>", "; ".join(kinds), said["description"]


def _shape(name: str, schema: Document) -> str:
    needed = schema.get("required", ())
    fields = (
        (f"<code>{escape(field)}</code>", _type(said) + (" · needed" if field in needed else ""), _choice(said))
        for field, said in schema.get("properties", {}).items()
    )
    inside = _table("", fields) if "properties" in schema else f"<p>{_type(schema)} {_choice(schema)}</p>"
    told = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    return f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{told}{inside}</details>'


def _type(schema: Document) -> str:
    """A schema in a few words, with links to the shapes it names. Already safe to show."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    kind = schema.get("type", "one of these" if "enum" in schema else "any")
    return escape(kind if isinstance(kind, str) else " or ".join(kind))


def _choice(schema: Document) -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return f"{schema['default']!r} when left out" if "default" in schema else ""


def _table(caption: str, rows: Iterator[tuple[str, str, str]]) -> str:
    """Name and type come as HTML, the sentence as text."""
    lines = "".join(f"<tr><td>{name}</td><td>{type}</td><td>{escape(said)}</td></tr>" for name, type, said in rows)
    return f"<table><caption>{caption}</caption>{lines}</table>" if lines else ""
