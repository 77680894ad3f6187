"""How far the messages of a check's scenario got, as its processes report it: bounded names, never payloads.

Why bounded here: what a process under test reports ends up in an answer that arms read, and must not become a channel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from harness.core.types import Json

ENTRIES_MAX = 64
NAME_CHARACTERS_MAX = 80

Checkpoint = list[str]
"""Correlation, stage, node."""


def bounded(reported: Iterable[Json]) -> list[Checkpoint]:
    """The entries that are three short names, the first 64 of them; whatever else was reported is left out."""
    kept = [list(entry) for entry in reported if _is_checkpoint(entry)]
    return kept[:ENTRIES_MAX]


def from_lines(lines: Iterable[str]) -> list[Checkpoint]:
    """The same from JSON lines; a line that is no JSON was cut off by the end of its process."""

    def parsed(line: str) -> Json:
        try:
            return json.loads(line)
        except ValueError:
            return None

    return bounded(map(parsed, lines))


def _is_checkpoint(entry: Json) -> bool:
    named = isinstance(entry, list | tuple) and len(entry) == 3
    return named and all(isinstance(part, str) and len(part) <= NAME_CHARACTERS_MAX for part in entry)
