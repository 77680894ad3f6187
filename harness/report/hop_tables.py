"""The tables about hops: what they foretell, by which definition, through which states, and how good verifiers were.

Apart from the other breakdowns because they exist for workloads with a tree only.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.records import HOP_STATES
from harness.metrics.hops import DEFINITIONS
from harness.report.cells import Cell, Spot, Table, query, share, words

_PARTS = {"with_faults": "yes", "without_faults": "no"}
_CELLS = ("caught", "missed", "false_alarms", "passed", "fixed", "regressed")
_RATES = ("catch_rate", "fix_rate", "false_alarm_rate", "regression_rate")


def tables(here: Spot) -> list[Table]:
    """The four of them; without rows where no workload of the run has hops."""
    told = list(_told(here))
    return [_predictions(told), _definitions(told), _states(told), _verifiers(told)]


Told = list[tuple[tuple[Cell, Cell], Spot]]


def _told(here: Spot) -> Iterator[tuple[tuple[Cell, Cell], Spot]]:
    """Arm and whether faults were scheduled, and the rates of these trials, where there are any."""
    for arm, parts in here.get("hops").items():
        for part, label in _PARTS.items():
            entry = parts.get(part)
            if not entry.because:
                yield (words(arm, query(arm=arm, twin=int(label == "no"))), words(label)), entry


def _predictions(told: Told) -> Table:
    rows = []
    for labels, entry in told:
        clean = [entry.get(per, "brief_satisfied").cell(share) for per in ("per_attempt", "per_hop")]
        foretold = [entry.get("independence", per).cell(share) for per in ("per_attempt", "per_hop")]
        residual = entry.get("residual").of("all_hops_clean", "failed_runs")
        rows.append((*labels, *clean, *foretold, entry.get("run_success").ranged(share), residual))
    return Table(
        name="hops",
        title="What clean hops foretell of a run",
        about="Foretold: the rate to the power of the hops of a run, as if every hop failed independently and nothing "
        "else made a run fail. The last column counts failed runs in which every hop was clean: no rate of hops can "
        "see what was wrong there, since it came from above.",
        header=(
            "arm",
            "faults",
            "clean attempts",
            "clean hops",
            "foretold by attempts",
            "foretold by hops",
            "runs that succeeded",
            "all hops clean / failed runs",
        ),
        rows=tuple(rows),
        labels=2,
    )


def _definitions(told: Told) -> Table:
    rows = [
        (*labels, words(per.replace("_", " ")), *(entry.get(per, name).cell(share) for name in DEFINITIONS))
        for labels, entry in told
        for per in ("per_attempt", "per_hop")
    ]
    return Table(
        name="hop_definitions",
        title="When a hop is clean",
        about="Each definition is stricter than the one to its left. A hop is clean when any of its attempts is.",
        header=("arm", "faults", "share", *(name.replace("_", " ") for name in DEFINITIONS)),
        rows=tuple(rows),
        labels=3,
    )


def _states(told: Told) -> Table:
    rows = [(*labels, *(entry.get("states", state).cell(str) for state in HOP_STATES)) for labels, entry in told]
    return Table(
        name="hop_states",
        title="States of hops",
        about="Attempts that went through each state. Neither usable nor repaired: nobody has tried to use it.",
        header=("arm", "faults", *HOP_STATES),
        rows=tuple(rows),
        labels=2,
    )


def _verifiers(told: Told) -> Table:
    rows = []
    for labels, entry in told:
        found = entry.get("verifier")
        cells = [found.get(name).cell(str) for name in _CELLS]
        rows.append((*labels, *cells, *(found.get(name).cell(share) for name in _RATES)))
    return Table(
        name="hop_verifiers",
        title="Verifiers of hops",
        about="Caught and missed: returns that do not do what their brief says. Fixed: caught, and the next one does. "
        "Regressed: a false alarm, and the next one does not any more.",
        header=("arm", "faults", *(name.replace("_", " ") for name in (*_CELLS, *_RATES))),
        rows=tuple(rows),
        labels=2,
    )
