"""Everything that trials need of other people's packages, before the first of them: archives and kill matrices.

Why apart from the task: a trial downloads nothing, and may run where there is no network.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from harness.core.errors import ConfigError
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation.packages import Package


def prepare(told: Callable[[str], None] = lambda line: None) -> None:
    """Fill the cache where it has gaps, on all cores: a minute or two on a fresh machine, moments afterwards, when
    nothing is written. Whoever asks meanwhile waits. told: gets a line before the work, and one per package that is
    ready.

    Raises ConfigError when a package cannot be had, its tests do not pass as they come, its kill matrix is not the
    pinned one, or the cache cannot be written.
    """
    folder = packages.root()
    wanted = [package for package in packages.locked() if not _kept(package)]
    if not wanted:
        told(f"all {len(packages.locked())} packages are ready in {folder}")
        return
    told(f"{len(wanted)} packages are fetched into {folder}, and their own tests run on mutants: a minute or two")
    try:
        with _alone(folder), _cores() as cores:
            work = {cores.submit(_ready, package): package for package in wanted}
            for nth, done in enumerate(as_completed(work), start=1):
                done.result()
                told(f"{nth}/{len(wanted)} {work[done].id} is ready")
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
def _cores() -> Iterator[ThreadPoolExecutor]:
    """As many threads as cores. After an error, or Ctrl-C, what was not begun is not begun any more."""
    cores = ThreadPoolExecutor(os.cpu_count())
    try:
        yield cores
    finally:
        cores.shutdown(cancel_futures=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: several test processes, or runs, would all compute the same. A dead one lets go."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "preparing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
