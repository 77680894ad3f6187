"""Everything that trials need of other people's packages, before the first of them: archives and kill matrices.

Why apart from the task: a trial downloads nothing, and may run where there is no network.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness.core.errors import ConfigError
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation.packages import Package


def prepare() -> None:
    """Fill the cache where it has gaps, on all cores: a minute or two on a fresh machine, moments afterwards, when
    nothing is written. Whoever asks meanwhile waits.

    Raises ConfigError when a package cannot be had, its tests do not pass as they come, its kill matrix is not the
    pinned one, or the cache cannot be written.
    """
    if all(map(_kept, packages.locked())):
        return
    folder = packages.root()
    try:
        with _alone(folder), ThreadPoolExecutor(os.cpu_count()) as cores:
            list(cores.map(_ready, packages.locked()))
    except OSError as error:
        hint = f"make room, or name a folder that can be written in {packages.ENV}"
        raise ConfigError(error.strerror or str(error), where=str(error.filename or folder), hint=hint) from error


def _kept(package: Package) -> bool:
    try:
        packages.tree(package)
        matrix.load(package)
    except ConfigError:
        return False
    return True


def _ready(package: Package) -> None:
    packages.fetch(package)
    matrix.prepare(package)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: several test processes, or runs, would all compute the same. A dead one lets go."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "preparing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
