"""Guards of the declaration authority: what it derives, what it has stated, and within what it measures."""

from __future__ import annotations

from collections.abc import Iterator

from arms.mesh.control.admission import Refusal
from arms.mesh.control.declaration import Declaration
from harness.incidents.kinds.plan import coupled_anywhere, union_of_dependencies
from harness.incidents.play import Guard


def _asks_for_nothing(declaration: Declaration) -> Iterator[Refusal]:
    """Admission before anybody asked what a runner takes for granted."""
    return iter(())


GUARDS: tuple[Guard, ...] = (
    Guard(
        name="fixtures_derived",
        primitive="declaration",
        target="arms.mesh.control.compiler:fixtures_of",
        reverted=union_of_dependencies,
        incidents=("I13",),
        about="the rows of a component are those that its own scenarios assert",
    ),
    Guard(
        name="toolchain_stated",
        primitive="declaration",
        target="arms.mesh.control.admission:unstated",
        reverted=_asks_for_nothing,
        incidents=("I14",),
        about="what a runner takes for granted has to be stated before anything runs",
    ),
    Guard(
        name="coupling_per_component",
        primitive="declaration",
        target="arms.mesh.control.planner:coupled",
        reverted=coupled_anywhere,
        incidents=("I18",),
        about="work is coupled inside one component, never across",
    ),
)
