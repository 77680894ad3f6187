"""What a check found, and how a turned verdict or a broken runner looks to whoever reads its output.

Why here: an injected failure has to look like an organic one, so its wording follows the runner's own.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass

WORDING = {"pytest": "FAILED {} - AssertionError\n", "node": "not ok - {}\n"}
"""How each runner says that it failed."""


class BrokenRunner(Exception):
    """The runner itself failed: there is no verdict."""


@dataclass(frozen=True)
class Found:
    """failing: ids of failed tests, in order; empty when all passed. ran: tests that were run (0: not known)."""

    passed: bool
    failing: tuple[str, ...] = ()
    ran: int = 0

    @property
    def status(self) -> int:
        return 0 if self.passed else 1


def turned(kind: str, target: str, found: Found, output: bytes) -> tuple[Found, bytes]:
    """The opposite verdict, with an output that agrees with it. What fails is the target as a whole, as when it cannot
    be collected: an id of its own would tell an injected failure from an organic one."""
    if found.passed:
        return Found(False, (target,), found.ran), output + WORDING.get(kind, "error: {}\n").format(target).encode()
    return Found(True, (), found.ran), b"." * max(found.ran, 1) + b"\n"


def print_internal_error() -> None:
    """The current exception, in the manner in which pytest reports that it broke down itself.

    Without frames where the runner broke down: they would tell an injected breakdown from an organic one.
    """
    error = sys.exception()
    whole = not isinstance(error, BrokenRunner)
    lines = traceback.format_exception(error) if whole else traceback.format_exception_only(BrokenRunner, error)
    for line in "".join(lines).splitlines():
        print("INTERNALERROR>", line.replace(f"{BrokenRunner.__module__}.", ""))
