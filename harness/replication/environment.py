"""What two runs were made by and on: code, packages, Python, machine.

Why: where these differ, nobody may expect equality, and a difference says nothing about the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import manifest as making
from harness import seal
from harness.replication import layout, sources

MISSING = "not installed"
PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==", re.MULTILINE)


def differences(root: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Why a run of the unpacked bundle in `root` by the harness at hand need not give the same, one reason each.

    Packages count where the bundle's lock file pins them; without a lock file all of them do.
    """
    start = manifest["starts"][-1]
    code = sources.differing(sources.bundled(root), sources.installed())
    found = [f"code: {_few(code)}"] if code else []
    lock = root / layout.SOURCE / seal.LOCK
    names = pinned(lock.read_text("utf-8")) if lock.is_file() else None
    found += [f"package {line}" for line in package_changes(start.get("packages", {}), making.packages(), names)]
    held, here = capabilities(start["machine"]), capabilities(making.machine())
    return found + [f"{key}: {held[key]} in the bundle, {here[key]} here" for key in held if held[key] != here[key]]


def capabilities(machine: Mapping[str, Any]) -> dict[str, str]:
    """What of a machine can change a result by itself: Python's minor version, processor, operating system. The number
    of cores cannot: time is scaled, and a pair that lags is invalid."""
    return {
        "python": ".".join(str(machine.get("python", "")).split(".")[:2]),
        "processor": str(machine.get("processor", "")),
        "system": str(machine.get("platform", "")).partition("-")[0],
    }


def package_changes(first: Mapping[str, str], second: Mapping[str, str], names: set[str] | None = None) -> list[str]:
    """`name: version -> version` for every package that differs; names: normalised, the only ones that count."""
    a, b = ({normal(name): version for name, version in held.items()} for held in (first, second))
    kept = sorted(({*a, *b}) if names is None else names)
    return [f"{n}: {a.get(n, MISSING)} -> {b.get(n, MISSING)}" for n in kept if a.get(n) != b.get(n)]


def pinned(lock: str) -> set[str]:
    """The normalised names of the packages that a lock file pins."""
    return {normal(name) for name in PINNED.findall(lock)}


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _few(changes: Mapping[str, str], count: int = 5) -> str:
    named = [f"{path} {how}" for path, how in list(changes.items())[:count]]
    more = f" and {len(changes) - count} more" if len(changes) > count else ""
    return ", ".join(named) + more
