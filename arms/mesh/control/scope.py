"""What a result says that it is about, for whoever must know whether it is about what was asked."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.types import Json


def stated_of(value: Json, keys: Iterable[str]) -> dict[str, str]:
    """What a result says under each of the keys; those that it says nothing under are left out."""
    return {key: said for key in keys if (said := stated(value, key)) is not None}


def stated(value: Json, key: str) -> str | None:
    """What a result says under a key: of an object, or of a text that spells one."""
    if isinstance(value, dict):
        if key in value:
            return str(value[key])
        return next((said for item in value.values() if (said := stated(item, key)) is not None), None)
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        for part in value[1:-1].split(","):
            name, _, said = part.partition(":")
            if name.strip(" \"'") == key:
                return said.strip(" \"'")
    return None
