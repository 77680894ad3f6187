"""Ways to go wrong that are not data.

BaseException
├── Crash           the orchestrator process dies here (sim world); a layer must not be able to swallow it
└── HarnessBug      our own machinery broke: the trial is invalid, never an arm's zero
Exception
└── ConfigError     bad input of a person: what, where, what is allowed, what to do next
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Crash(BaseException):
    """The simulated process was killed. Derives from BaseException so that `except Exception` lets it through."""


class HarnessBug(BaseException):
    """An invariant of the harness itself does not hold."""


class ConfigError(Exception):
    """Bad input, with a message made for the person who wrote it. `where` is a file, line or path into the document."""

    def __init__(self, problem: str, *, where: str = "", allowed: str = "", hint: str = "") -> None:
        self.problem, self.where, self.allowed, self.hint = problem, where, allowed, hint
        parts = [f"{where}: {problem}" if where else problem]
        if allowed:
            parts.append(f"allowed: {allowed}")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
