"""What the scripted agents of the tree compose for the checks of their hops: scenarios, in the words of their voice."""

from __future__ import annotations

from typing import Any

from workloads.brief_tree.facts import Facts
from workloads.common.voice import Voice, completion_request, event, insert

STREAM, SERVICE, TABLE = "desk", "desk", "filings"
FILED = "return.filed"
IN_SCENARIO = ("transport", "database", "provider")
"""Boundaries whose effects come from a scenario; packages and hooks have ways of their own."""


def subject(f: Facts, hop: str) -> str:
    """What the effect of a hop is about."""
    return f"blurb:{f.number}" if f.placed[hop].boundary == "provider" else f.ref(hop)


def scenario(voice: Voice, f: Facts, hop: str) -> str:
    """The scenario file of a hop's check, as JSON text."""
    reads = [{"do": "count", "stream": STREAM}] * int(voice.pick((0, 1, 2), hop, "reads", level=3))
    steps = voice.shuffle([*_steps(voice, f, hop), *reads], hop, "steps", level=3)
    return voice.text({"steps": steps}, hop)


def _steps(voice: Voice, f: Facts, hop: str) -> list[dict[str, Any]]:
    effect, about = f.placed[hop], subject(f, hop)
    if effect.boundary == "database":
        signed = {"worker": voice.fresh("$worker", hop)} if effect.signed else {}
        return [insert(voice, SERVICE, TABLE, {"filing_ref": about, "desk": hop, **signed})]
    if effect.boundary == "provider":
        return [{"do": "complete", "request": completion_request(voice, about, f"return {f.ref(hop)}")}]
    if effect.times > 1 and voice.pick((False, True), "batch", level=5):
        items = [{"type": FILED, "subject": about, "desk": hop} for _ in range(effect.times)]
        events = [event(voice, f"{FILED}.batch", about, {"items": items}, "batch")]
    else:
        events = [event(voice, FILED, about, {"desk": hop}, "filed", n) for n in range(effect.times)]
    return [{"do": "publish", "stream": STREAM, "event": one} for one in events]
