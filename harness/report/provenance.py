"""What made a run, as `report.html` and `report.md` tell it: digests, code, machine, times, packages, trials run again.

Why: nobody can judge numbers without knowing which code made them on what.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def provenance(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, value) of everything that identifies the run: digests, code, machine, times."""
    registration = summary["preregistration"]
    facts = [
        ("schedule", f"{summary['schedule']['name']}, sha256 {summary['schedule']['sha256']}"),
        ("registration", f"{registration['id']}, sha256 {registration['sha256']}"),
    ]
    for key in ("seed", "started", "ended"):
        if manifest.get(key) is not None:
            facts.append((key, str(manifest[key])))
    if manifest.get("overrides"):
        facts.append(("changed on the command line", json.dumps(manifest["overrides"], sort_keys=True)))
    for nth, start in enumerate(manifest.get("starts", ()), start=1):
        told = f" (start {nth})" if len(manifest["starts"]) > 1 else ""
        git = start.get("git") or {}
        dirty = ", with changes that are not committed" if git.get("dirty") else ""
        facts.append((f"commit{told}", f"{git['commit']}{dirty}" if git else "not in a repository"))
        machine = start.get("machine", {})
        facts.append((f"machine{told}", ", ".join(f"{key} {value}" for key, value in machine.items())))
        facts.append((f"trials at a time{told}", str(start.get("jobs", "unknown"))))
    for key in ("digests", "files"):
        for name, digest in sorted((manifest.get(key) or {}).items()):
            facts.append((name, f"sha256 {digest}" if isinstance(digest, str) else json.dumps(digest, sort_keys=True)))
    return facts


def without_provenance(page: bytes) -> bytes:
    """`report.html` without what belongs to one start of a run and not to what came out: two runs of the same schedule
    and code in the sim world are alike but for that."""
    return re.sub(rb'<section aria-labelledby="provenance">.*?</section>', b"", page, flags=re.DOTALL)


def packages(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and versions of the packages that the run was made with, as of its last start."""
    starts = manifest.get("starts") or [{}]
    return sorted((starts[-1].get("packages") or {}).items())


def reruns(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(trial, because) of trials that the harness spoiled and ran again."""
    return [(str(one.get("trial", "")), str(one.get("because", ""))) for one in manifest.get("reruns") or ()]
