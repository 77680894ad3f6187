"""The registered rule of replication: what a second run has to show before it may be called a replication.

Why registered: whoever sees both runs can always find a margin within which they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError

MARGIN_DUPLICATES, MARGIN_WORK_SHARE, ALPHA = 0.10, 0.10, 0.05
"""Where the registration says nothing. Two equal arms show a margin of 0.10 from 36 pairs on."""

BYTES = (
    "Simulated: the same schedule is run again. REPLICATED when every trial of the counted pairs has the same record "
    "(but for real_s, lag_ms and tries, which belong to a machine) and the same events in trace and truth, in order, "
    "and every derived file has the same bytes, but for the section of report.html that names its start, its "
    "machine and its code. Where a trial lies in its segment depends on workers: not compared.",
)
EQUIVALENCE = (
    "Live: the same schedule is run again. For each of `arms` and each primary, two one-sided tests by betting on the "
    "differences of the trials that have the same place in registered order: the mean difference is above -margin and "
    "below +margin, each at `alpha`, a trial that the harness spoiled entered against the claim. REPLICATED when all "
    "of them are shown (so that no correction for their number is due) and the kill criterion is decided alike. What "
    "is not shown is not replicated: too few pairs are no agreement.",
)
ENVIRONMENT = (
    "DIFFERENT_ENVIRONMENT, whatever the comparison shows: another Python (minor version), processor or operating "
    "system, another version of a package of the lock file, or other files of the harness than those in the bundle."
)


class Rule(Struct, frozen=True, kw_only=True):
    """margin_duplicates: share of the intended effects of a trial; margin_work_share: share of its token budget;
    both as differences between two runs of one arm. alpha: of each one-sided test. arms: those that the rule is about.
    registered: whether the numbers are the registration's, or the defaults of the harness that made the bundle."""

    schema: Literal["agentmesh-replication/1"] = "agentmesh-replication/1"
    test: Literal["byte_equality", "equivalence"]
    arms: tuple[str, ...]
    margin_duplicates: float = MARGIN_DUPLICATES
    margin_work_share: float = MARGIN_WORK_SHARE
    alpha: float = ALPHA
    registered: bool = False
    says: tuple[str, ...] = ()


def rule_of(manifest: Mapping[str, Any]) -> Rule:
    """The rule of a run, from the `replication` section of its registration where it has one. Raises ConfigError for
    numbers that no test can be made with."""
    document = manifest.get("preregistration", {}).get("document") or {}
    section = document.get("replication") or {}
    names = document.get("arms", {})
    live = manifest.get("world") == "live"
    given = {key: section[key] for key in ("margin_duplicates", "margin_work_share", "alpha") if key in section}
    if not all(isinstance(v, float | int) and 0 < v < 1 for v in given.values()):
        raise ConfigError(f"replication is {given}", where="registration", allowed="numbers above 0 and below 1")
    return Rule(
        test="equivalence" if live else "byte_equality",
        arms=tuple(n for n in (names.get("control"), names.get("treatment")) if n in manifest.get("arms", ())),
        registered=bool(given),
        says=(*(EQUIVALENCE if live else BYTES), ENVIRONMENT),
        margin_duplicates=float(given.get("margin_duplicates", MARGIN_DUPLICATES)),
        margin_work_share=float(given.get("margin_work_share", MARGIN_WORK_SHARE)),
        alpha=float(given.get("alpha", ALPHA)),
    )


def parse(raw: bytes, where: str) -> Rule:
    """The rule that a bundle holds. Raises ConfigError when it cannot be read."""
    try:
        return msgspec.json.decode(raw, type=Rule)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the rule of replication cannot be read: {error}", where=where) from error
