"""Which files of a run's folder are sealed, which are derived, and where they lie in a bundle.

One list, so that what is packed, what is checked and what is made again cannot drift apart.
"""

from __future__ import annotations

from pathlib import Path

SEALED = ("manifest.json", "trials.jsonl", "trace/*.seg", "truth/*.seg", "calibration.json")
"""Not to be had again without running."""

DERIVED = (
    "findings.jsonl",
    "rows.jsonl",
    "violations.jsonl",
    "metrics.csv",
    "summary.json",
    "report.md",
    "report.html",
    "tables/*",
    "plots/*",
)
"""The same bytes from the same sealed files and the same code."""

RUN, SOURCE = "run", "source"
CRATE, DIGESTS, README = "ro-crate-metadata.json", "digests.json", "README.md"
SCHEDULE, REGISTRATION, RULE = "schedule.json", "preregistration.json", "replication.json"
DIGESTS_SCHEMA = "agentmesh-digests/1"


def sealed(folder: Path) -> dict[str, Path]:
    """The sealed files of a run, by path within its folder."""
    return _matching(folder, SEALED)


def derived(folder: Path) -> dict[str, Path]:
    """The derived files of a run, by path within its folder."""
    return _matching(folder, DERIVED)


def _matching(folder: Path, patterns: tuple[str, ...]) -> dict[str, Path]:
    found = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    kept = {path.relative_to(folder).as_posix(): path for path in found if path.suffix != ".new"}
    return dict(sorted(kept.items()))
