"""A run, sorted: which rows count, of which arm, in which order.

Why apart from the summary: whoever looks at a run, while it goes on or beside another one, has to look at the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from harness.report.evidence import by_arm, prefix
from harness.report.prereg import Prereg
from harness.report.rows import Row, ordered

HEADLINE = (
    "naive",
    "naive_contained",
    "journaled",
    "journaled_probe",
    "mesh",
    "mesh_without_probe",
    "mesh_without_provider_replay",
)
"""Order of the arms in every table; arms that are not listed follow in the order of the manifest."""

LAG = "scheduler lag"
"""How the reason of a trial begins that a late timer made invalid."""


class Run(Struct, frozen=True, kw_only=True):
    """A run, sorted: rows of each arm over its own finished prefix, twins, and the pairs of the control's prefix."""

    prereg: Prereg
    arms: tuple[str, ...]
    control: str
    treatment: str  # empty: no arm to compare
    indices: tuple[int, ...]
    rows: dict[str, tuple[Row, ...]]
    twins: dict[str, tuple[Row, ...]]
    fixed_size: bool  # nobody looked at the data to decide how many there are

    def common(self, arm: str) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """Rows of the control and of `arm` over their common prefix."""
        rows = self.rows[arm]
        return self.rows[self.control][: len(rows)], rows

    @property
    def counted(self) -> tuple[Row, ...]:
        """All rows that numbers rest on: by arm, twins after the pairs."""
        return tuple(row for arm in self.arms for row in (*self.rows[arm], *self.twins.get(arm, ())))


def spread_lag(rows: Sequence[Row]) -> list[Row]:
    """A pair that lagged in one arm is invalid in all: a noisy host must not time out one arm only, and the arms of a
    pair run next to each other. Twins are pairs of their own."""
    lagged = {row.pair for row in rows if not row.valid and row.because.startswith(LAG)}
    return [
        replace(row, status="invalid", because=f"{LAG} in another arm of its pair")
        if row.valid and row.pair in lagged
        else row
        for row in rows
    ]


def arrange(rows: Sequence[Row], manifest: Mapping[str, Any], prereg: Prereg) -> Run:
    """Sort rows into arms, pairs and the registered prefix.

    Where no trial has faults, the twins are all there is and stand for them; without the registered control arm, the
    first arm takes its place. Both fail a gate, so tables can be shown and nothing is decided.
    """
    rows = spread_lag(rows)
    faulted, twins = by_arm(rows), by_arm(rows, twins=True)
    if not faulted:
        faulted, twins = twins, {}
    if not faulted:
        raise ValueError("there is no trial to report on")
    order = dict.fromkeys((*HEADLINE, *manifest.get("arms", ()), *sorted(faulted)))
    arms = [name for name in order if name in faulted]
    control = prereg.arms.control if prereg.arms.control in arms else arms[0]
    last = max(max(places) for places in faulted.values())
    pairs = min(int(manifest.get("pairs", last + 1)), last + 1)
    indices = prefix(faulted, twins, (control,), pairs)[: prereg.design.pairs_max]
    kept = {arm: [i for i in prefix(faulted, twins, (control, arm), pairs) if i in set(indices)] for arm in arms}
    return Run(
        prereg=prereg,
        arms=tuple(arms),
        control=control,
        treatment=_treatment(arms, control, prereg),
        indices=tuple(indices),
        rows={arm: tuple(faulted[arm][i] for i in kept[arm]) for arm in arms},
        twins={
            arm: tuple(places[i] for i in sorted(places) if indices and i <= indices[-1])
            for arm, places in twins.items()
            if arm in arms
        },
        fixed_size=manifest.get("stopping", {}).get("until", "all_pairs") == "all_pairs",
    )


def registered(rows: Iterable[Row], manifest: Mapping[str, Any], prereg: Prereg) -> list[Row]:
    """The rows that derived files may rest on: those of the registered prefix, in order, whatever else was run."""
    run = arrange(ordered(rows), manifest, prereg)
    return ordered(run.counted)


def _treatment(arms: Sequence[str], control: str, prereg: Prereg) -> str:
    """The registered treatment; in a run of two arms (an A/A run, say) the other one."""
    others = [arm for arm in arms if arm != control]
    if prereg.arms.treatment in others:
        return prereg.arms.treatment
    return others[0] if len(others) == 1 else ""
