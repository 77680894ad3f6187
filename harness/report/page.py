"""What stands in `report.html` besides its tables: the head, the sections, the trials behind the numbers.

Pure: the template only lays out what is put together here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from harness.core.records import NotApplicable
from harness.report import grounds
from harness.report.cells import Cell, Spot, Table, is_number, number, query, words
from harness.report.evidence import NO_FAULT
from harness.report.rows import Row

TRIALS_MAX = 6000
"""More trials than this would make the page too large for a browser; all of them are in `rows.jsonl`."""

SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("calibration", "Calibration", ("calibration", "noise_floor")),
    (
        "primaries",
        "Primaries",
        (
            "primary_duplicates",
            "primary_work",
            "differences_duplicate_effect_rate",
            "differences_work_destroyed_per_fault",
            "operation",
            "claims",
            "power",
        ),
    ),
    ("where", "By fault, workload, boundary and level", ("by_fault", "by_workload", "by_boundary", "levels")),
    ("blame", "Blame", ("blame",)),
    ("ablation", "Ablation", ("ablation",)),
    ("dependence", "Dependence", ("dependence",)),
    ("hops", "Hops of delegation trees", ("hops", "hop_definitions", "hop_states", "hop_verifiers")),
    ("exposure", "Exposure", ("exposure",)),
    ("specifications", "Trace specifications", ("specifications",)),
    ("trouble", "What went wrong and was kept", ("trouble",)),
    ("secondary", "Secondary metrics", ("guards", "metrics", "verdicts")),
)
"""Id, heading and tables of each section, in the order in which a sceptic asks."""

FIGURES = {
    "primaries": ("duplicate_effect_rate", "work_destroyed_per_fault"),
    "secondary": ("effects_over_invocations", "cost_over_time"),
    "ablation": ("ablation",),
}
"""Plots by section."""


class Section(Struct, frozen=True, kw_only=True):
    """A section of the page. figures: {name, caption, svg}. folded: what is said of tables that are not opened."""

    id: str
    title: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Mapping[str, str], ...] = ()
    folded: str = ""


def sections(here: Spot, listed: Sequence[Table], figures: Sequence[Mapping[str, str]]) -> list[Section]:
    """The tables in their sections; a table that none claims stands in the last one, so that nothing is lost. A
    calibration that passed is folded, since nothing in it needs a reader."""
    by_name = {table.name: table for table in listed}
    claimed = {name for _, _, names in SECTIONS for name in names}
    rest = tuple(table for table in listed if table.name not in claimed)
    found = []
    for nth, (id_, title, names) in enumerate(SECTIONS):
        tables = tuple(by_name[name] for name in names if name in by_name)
        tables += rest if nth == len(SECTIONS) - 1 else ()
        shown = tuple(figure for figure in figures if figure["name"] in FIGURES.get(id_, ()))
        if tables or shown:
            folded = (
                calibrated(here) if id_ == "calibration" and here.get("calibration", "passed").value is True else ""
            )
            found.append(Section(id=id_, title=title, tables=tables, figures=shown, folded=folded))
    return found


# --- the head -----------------------------------------------------------------------------------------------------


class Head(Struct, frozen=True, kw_only=True):
    """The top of the page. label: confirmatory or exploratory, with reasons; reasons: by what they are about.
    facts: (what, cell)."""

    outcome: str
    meaning: str
    label: str
    label_because: tuple[str, ...]
    claims: tuple[tuple[str, str], ...]
    reasons: tuple[tuple[str, tuple[str, ...]], ...]
    failed_gates: tuple[str, ...]
    facts: tuple[tuple[str, Cell], ...]
    narrow: str


MEANINGS = {
    "GO": "harm in the control arm is material in operation",
    "GO_NARROW": "harm in the control arm is material for the named fault classes only",
    "STOP": "no primary is material: the premise is weak",
    "INCONCLUSIVE": "too little data to decide",
    "INVALID": "a condition failed without which the data may not be judged",
}


def head(summary: Mapping[str, Any]) -> Head:
    """The decision, what it rests on, and who decided."""
    here = Spot(summary)
    decision = summary["decision"]
    status = here.get("status")
    confirmed = status.value.get("confirmatory")
    label = {True: "confirmatory", False: "exploratory"}.get(confirmed, "not labelled")
    because = tuple(status.value.get("because", ())) if confirmed is not None else (status.because,)
    return Head(
        outcome=decision["kill_criterion"],
        meaning=MEANINGS.get(decision["kill_criterion"], ""),
        label=label,
        label_because=because,
        claims=tuple((kind.replace("_", "-"), said(here, kind)) for kind in ("superiority", "non_inferiority")),
        reasons=grouped(decision["reasons"]),
        failed_gates=tuple(decision.get("failed_gates", ())),
        facts=tuple(_facts(here)),
        narrow=", ".join(decision.get("narrow", ())),
    )


def grouped(reasons: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reasons under the phase that they begin with, which is named as it is named first; those of none under ""."""
    found: dict[str, tuple[str, list[str]]] = {}
    for reason in reasons:
        about, colon, rest = reason.partition(": ")
        if not colon or not about.startswith("phase "):
            about, rest = "", reason
        found.setdefault(about.partition(" (")[0], (about, []))[1].append(rest)
    return tuple((about, tuple(said)) for about, said in found.values())


def said(here: Spot, kind: str) -> str:
    """Whether a claim is shown, in words; a superiority within the noise floor is none."""
    claim = here["decision"][kind].value
    if "not_applicable" in claim:
        return f"not applicable ({claim['not_applicable']})"
    if claim.get("worse"):
        return f"refuted ({', '.join(claim['worse'])})"
    if not claim["shown"]:
        return "not shown"
    held = [
        name
        for name in claim.get("on", ())
        if not grounds.within_noise(here, name, here["primary"][name]["difference"])
    ]
    if claim.get("on") and not held:
        return "not claimed: the differences are within the noise floor"
    return f"shown on {', '.join(held)}" if held else "shown"


def _facts(here: Spot) -> Iterable[tuple[str, Cell]]:
    decision, trials, registration = here["decision"], here["trials"], here["preregistration"]
    pairs = Cell((decision["pairs_used"].num(str),), query(twin=0))
    stopped = here.get("stopping", "stopped_at")
    if is_number(stopped.value):
        pairs = pairs.then(", stopped at ", stopped.num(str))
        most = here.get("stopping", "pairs_max")
        pairs = pairs.then(" of at most ", most.num(str)) if is_number(most.value) else pairs
    yield "pairs used", pairs
    if is_number(decision.value.get("decided_at_pair")):
        yield "decided after pair", Cell((decision["decided_at_pair"].num(str),))
    stopping = here.get("stopping")
    if not stopping.because:
        yield "stopping rule", words(f"{stopping.value.get('rule', '')}: {_joined(stopping.value.get('because', ''))}")
    yield "calibration", words(calibrated(here))
    yield "evidence for GO", decision.get("e_go").cell(number)
    yield "evidence for STOP", decision.get("e_stop").cell(number)
    counted: list[Any] = []
    for status in ("ended", "stuck", "invalid"):
        counted += [", "] if counted else []
        counted += [trials[status].num(str), f" {status}"]
    yield "trials", Cell(tuple(counted), "all=1")
    levels = ", ".join(f"L{level}" for level in here.value["variation"])
    yield "world, variation", words(f"{here.value['world'] or 'unknown'}, {levels}")
    noted = "before" if registration.value["sealed_before_first_trial"] else "NOT before"
    yield "decided by", words(f"registration {registration.value['id']}, in the manifest {noted} the first trial")
    yield "its sha256", words(registration.value["sha256"])


def calibrated(here: Spot) -> str:
    """Whether the instrument could say no where it had to, in words."""
    found = here.get("calibration")
    if found.because:
        return f"not made: {found.because}"
    if found.value.get("passed"):
        return f"passed, {len(found.value.get('checks', ()))} checks"
    failed = [str(one.get("name")) for one in found.value.get("checks", ()) if not one.get("passed")]
    return f"FAILED: {', '.join(failed) or 'no check was made'}"


def _joined(because: Any) -> str:
    return because if isinstance(because, str) else "; ".join(map(str, because))


# --- the trials behind the numbers --------------------------------------------------------------------------------


def trials(rows: Sequence[Row], shown_pairs: Iterable[int], control: str, metrics: Sequence[str]) -> str:
    """The trials as JSON that may stand in a page: columns of codes, and measures where they are not zero.

    shown_pairs: those with a timeline in the page. control: exposure is compared with its. metrics: names, in order.
    """
    kept = rows[:TRIALS_MAX]
    met = {row.pair for row in rows if row.arm == control and row.exposed and row.fault_class != NO_FAULT}
    coded = ("arm", "workload", "fault_class", "variant")
    arms, workloads, faults, variants = (_codes(getattr(row, name) for row in kept) for name in coded)
    named = [name for name in metrics if not name.startswith("verdict_")]
    measures = _codes(name for row in kept for name in (*_counts(row), *(f"metric.{n}" for n in named)))
    gaps: dict[tuple[int, ...], int] = {}
    listed = []
    for row in kept:
        values, missing = _counts(row), []
        for name in named:
            value = row.metric(name)
            if isinstance(value, NotApplicable):
                missing.append(measures[f"metric.{name}"])
            elif value:
                values[f"metric.{name}"] = value
        flat = [part for name, value in values.items() for part in (measures[name], _short(value))]
        flags = (
            row.exposed + 2 * row.success + 4 * (row.fault_class == NO_FAULT) + 8 * (row.pair in met and row.exposed)
        )
        struck = [faults[row.fault_class], variants[row.variant]]
        head = [row.trial, row.index, arms[row.arm], workloads[row.workload], *struck, row.variation]
        harm = [row.intended, row.duplicated, row.lost, row.work.destroyed]
        listed.append([*head, row.status, flags, *harm, gaps.setdefault(tuple(missing), len(gaps)), flat])
    data = {
        "total": len(rows),
        "arms": list(arms),
        "workloads": list(workloads),
        "faults": list(faults),
        "variants": list(variants),
        "measures": list(measures),
        "gaps": [list(gap) for gap in gaps],
        "shown": sorted(shown_pairs),
        "rows": listed,
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _counts(row: Row) -> dict[str, float]:
    """Counts of a trial that are not zero, by measure."""
    found: dict[str, float] = {"work.destroyed": row.work.destroyed}
    for name, counts in row.boundaries.items():
        here = {"duplicates": counts.duplicated, "duplicates_gross": counts.gross}
        here |= {"lost": counts.lost, "stale": counts.stale}
        found |= {f"{name}.{key}": value for key, value in here.items()}
    found |= {f"verdict.{name}": value for name, value in row.verdicts.items()}
    found |= {f"exposure.{name}": value for name, value in row.exposure.items()}
    found |= {f"spec.{name}": value for name, value in row.violations.items()}
    return {name: value for name, value in found.items() if value}


def _codes(names: Iterable[str]) -> dict[str, int]:
    return {name: nth for nth, name in enumerate(dict.fromkeys(names))}


def _short(value: float) -> float:
    """Six digits: for a list that is looked at; exact values are in `metrics.csv`."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded
