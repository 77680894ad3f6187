"""Everything that trials need of other people's packages, before the first of them: archives and kill matrices.

Why apart from the task: a trial downloads nothing, and may run where there is no network.
"""

from __future__ import annotations

from workloads.repository_mutation import matrix, packages


def prepare() -> None:
    """Fill the cache where it has gaps: minutes on a fresh machine, moments afterwards.

    Raises ConfigError when a package cannot be had or its tests do not pass as they come.
    """
    for package in packages.locked():
        packages.fetch(package)
        matrix.prepare(package)
