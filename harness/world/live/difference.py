"""Where two JSON values differ first, in words.

Why apart from the cassette: what is said of a request that is not on it is for people, and no part of its format.
"""

from __future__ import annotations

from typing import Any

import msgspec

SHOWN_CHARACTERS = 80


def difference(recorded: Any, now: Any, path: str = "") -> str:
    """The first place where two JSON values differ, with both sides; an empty string when they do not."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in sorted({*recorded, *now}):
            inner = f"{path}.{name}" if path else str(name)
            if name not in recorded or name not in now:
                return f"{inner} is only {'recorded' if name in recorded else 'there now'}"
            if told := difference(recorded[name], now[name], inner):
                return told
        return ""
    if isinstance(recorded, list) and isinstance(now, list):
        for index, (one, other) in enumerate(zip(recorded, now, strict=False)):
            if told := difference(one, other, f"{path}[{index}]"):
                return told
        return "" if len(recorded) == len(now) else f"{path} has {len(recorded)} items recorded and {len(now)} now"
    if recorded == now:
        return ""
    start = _parting(recorded, now) if isinstance(recorded, str) and isinstance(now, str) else 0
    return f"{path} was {_shown(recorded, start)} and is {_shown(now, start)}"


def _parting(one: str, other: str) -> int:
    """Where to begin to show two texts: a little before they part."""
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return max(0, common - SHOWN_CHARACTERS // 4)


def _shown(value: Any, start: int) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    cut = text[start : start + SHOWN_CHARACTERS]
    return f"{'...' if start else ''}{cut!r}{'...' if start + SHOWN_CHARACTERS < len(text) else ''}"
