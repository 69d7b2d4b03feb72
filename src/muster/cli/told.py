"""`cluster explain` in words. Pure."""

from __future__ import annotations

from muster.cli.show import Thing, instant, span

LAST_STEPS = 8


def explained(told: Thing, now: float) -> str:
    """What a person asks at night: where does it stand, why, since when, and what is it waiting for until when?"""
    since = instant(told.get("since"))
    held = f" for {span(now - since)}" if since is not None else ""
    why = f": {told['because']}" if told.get("because") else ""
    lines = [f"{told['name']} is {told['phase']}{held}{why}.", *waits(told, now), *stuck(told, now)]
    lines += [f"{held['type']}: {held['message']}" for held in told.get("conditions") or []]
    nodes = told.get("nodes") or {}
    if nodes:
        lines.append("Nodes: " + ", ".join(f"{count} {phase}" for phase, count in nodes.items()) + ".")
    lines += [f"  {words}" for words in told.get("troubled") or []]
    return "\n".join(lines + steps(told))


def waits(told: Thing, now: float) -> list[str]:
    waiting = told.get("waiting") or {}
    if not waiting.get("for"):
        return []
    until = instant(waiting.get("until"))
    return [f"Waiting: {waiting['for']}" + (f" ({span(until - now)} more at most)." if until is not None else ".")]


def stuck(told: Thing, now: float) -> list[str]:
    since = instant(told.get("stuck_since"))
    return [f"Stuck: this phase should have ended {span(now - since)} ago."] if since is not None else []


def steps(told: Thing) -> list[str]:
    found = told.get("steps") or []
    if not found:
        return []
    return ["", "Last steps:"] + [
        f"  {step['at']}  {step['type']:<18}  {whose(step)}{step.get('message') or step.get('cause') or ''}".rstrip()
        for step in sorted(found, key=lambda step: step["seq"])[-LAST_STEPS:]
    ]


def whose(step: Thing) -> str:
    """A step of one node says which."""
    node = (step.get("data") or {}).get("node")
    return f"{node}: " if node else ""
