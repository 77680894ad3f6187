"""The tables of the report: one list for the page, for Markdown, CSV and LaTeX.

Every number is taken from the summary by its place there, so that no form can show another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.metrics import METRICS
from harness.metrics.blame import BLAME
from harness.report import breakdowns, grounds, hop_tables, primaries
from harness.report.ablation import sentences, worse
from harness.report.cells import Cell, Spot, Table, number, query, share, tokens, words
from harness.report.evidence import DUPLICATES, WORK

TROUBLE_SHOWN = 40

GUARDS = (
    "lost_incidence",
    "stale",
    "wrongly_suppressed",
    "falsely_rejected",
    "foreign_receipts",
    "phantom",
    "task_success",
)
"""Metrics of their own table: what an arm could buy a low duplicate rate with."""


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """All tables of the report, in reading order. Those without rows are left out, unless they say why."""
    here = Spot(summary)
    listed = [
        grounds.calibration(here),
        grounds.noise_floor(here),
        primaries.duplicates(here),
        primaries.work(here),
        *(primaries.differences(here, name) for name in primaries.PRIMARIES),
        primaries.operation(here),
        grounds.claims(here),
        breakdowns.power(here),
        _by(here, "fault", "By fault class"),
        _by(here, "workload", "By workload"),
        _by_boundary(here),
        breakdowns.levels(here),
        breakdowns.blame(here),
        _ablation(here),
        breakdowns.dependence(here),
        *hop_tables.tables(here),
        grounds.exposure(here),
        grounds.violations(here),
        _trouble(here),
        _metrics(
            here, "guards", "Lost, stale and wrongly suppressed effects; task success", GUARDS, "Means per trial."
        ),
        _metrics(here, "metrics", "Other metrics", _others(summary), "Means over the trials that have a value."),
        _verdicts(here),
    ]
    return [table for table in listed if table.rows or table.absent or table.none]


def _arms(here: Spot) -> list[str]:
    return list(here.value["arms"])


# --- where it happened --------------------------------------------------------------------------------------------


def _by(here: Spot, what: str, title: str) -> Table:
    """Both primaries by fault class or by workload; without rows where the summary does not tell them apart."""
    rows = []
    for name, arms in here.get(f"by_{what}").items():
        for arm in _arms(here):
            entry, behind = arms[arm], {"arm": arm, what: name}
            if entry["exposure"]["trials"].value:
                met = entry["exposure"].of("exposed", "trials", str, query(**behind, exposed=1))
                rates = entry[DUPLICATES].ranged(share, query(**behind)), entry[WORK].ranged(tokens, query(**behind))
                rows.append((words(name), words(arm), *rates, met))
    return Table(
        name=f"by_{what}",
        title=title,
        about="Both primaries, with 95 % intervals.",
        header=(what, "arm", "duplicate-effect rate", "tokens destroyed per fault", "exposed / trials"),
        rows=tuple(rows),
        labels=2,
    )


def _by_boundary(here: Spot) -> Table:
    keys = ("intended", "observed", "duplicates", "duplicates_gross", "lost", "stale")
    rows = []
    for name, arms in here["by_boundary"].items():  # a summary of an earlier version knows fewer of them
        for arm in _arms(here):
            entry = arms[arm]
            if entry["intended"].value or entry["observed"].value:
                behind = [query(arm=arm, twin=0, of=f"{name}.{key}") for key in keys[2:]]
                counts = [entry[key].cell(str, by) for key, by in zip(keys[2:], behind, strict=True)]
                totals = [entry[key].cell(str, query(arm=arm, twin=0)) for key in keys[:2]]
                rows.append((words(name), words(arm), *totals, *counts))
    return Table(
        name="by_boundary",
        title="By boundary",
        about="Counts over all pairs. The hook boundary is not part of the primary rate.",
        header=("boundary", "arm", *(key.replace("duplicates_gross", "gross") for key in keys)),
        rows=tuple(rows),
        labels=2,
    )


# --- parts, metrics, trouble --------------------------------------------------------------------------------------


def _ablation(here: Spot) -> Table:
    found = here.value.get("ablation") or {"of": "", "arms": {}}
    shown = [name for name in next(iter(found["arms"].values()), {}) if name in METRICS]
    rows = []
    for arm in found["arms"]:
        cells = [_apart(here["ablation"]["arms"][arm][name], arm, found["of"], name) for name in shown]
        rows.append((words(arm, query(arm=f"{arm},{found['of']}", twin=0, paired=arm)), *cells))
    said = " ".join(f"{sentence}." for sentence in sentences(found)) if rows else ""
    about = (
        f"Each variant minus {found['of']} per trial, mean over common pairs, with the half width of a normal 95 % "
        "interval, for orientation: a star marks what is worse beyond it, which the part that was left out buys, and a "
        f"circle what is better, which it costs. {said}"
    )
    return Table(
        name="ablation",
        title="Ablation: what each primitive buys and costs",
        about=about.strip() if rows else "",
        header=("variant", *shown) if rows else (),
        rows=tuple(rows),
        absent="" if rows else "the run has fewer than three variants of its treatment arm",
    )


def _apart(entry: Spot, arm: str, complete: str, metric: str) -> Cell:
    behind = query(arm=f"{arm},{complete}", twin=0, paired=arm, of=f"metric.{metric}")
    if "difference" not in entry:
        return Cell((), behind, entry.because)
    low, high = entry.value["ci_low"], entry.value["ci_high"]
    sign = "" if not (low > 0 or high < 0) else " *" if worse(entry.value, metric) else " o"
    return Cell((entry["difference"].num(lambda d: f"{d:+,.3g}"), f" ± {(high - low) / 2:,.2g}{sign}"), behind)


def _others(summary: Mapping[str, Any]) -> list[str]:
    elsewhere = {*GUARDS, *BLAME}
    return [name for name in summary["secondary"] if name not in elsewhere and not name.startswith("verdict_")]


def _metrics(here: Spot, name: str, title: str, names: Sequence[str], about: str) -> Table:
    rows = []
    for metric in (n for n in names if n in here["secondary"]):
        by_arm = here["secondary"][metric]
        unit = next(iter(by_arm.value.values()))["unit"]
        form = share if unit.startswith("share") else number
        cells = [by_arm[arm].cell(form, query(arm=arm, twin=0, of=f"metric.{metric}")) for arm in _arms(here)]
        rows.append((words(metric), words(unit), *cells))
    header = ("metric", "unit", *_arms(here))
    return Table(name=name, title=title, about=about, header=header, rows=tuple(rows), labels=2)


def _verdicts(here: Spot) -> Table:
    counts = here["verdicts"]
    said = sorted({verdict for arm in _arms(here) for verdict in counts.value[arm]})
    rows = []
    for verdict in said:
        behind = {arm: query(arm=arm, twin=0, of=f"verdict.{verdict}") for arm in _arms(here)}
        cells = [
            counts[arm][verdict].cell(str, behind[arm]) if verdict in counts[arm] else words(0) for arm in _arms(here)
        ]
        rows.append((words(verdict), *cells))
    return Table(
        name="verdicts",
        title="Verdicts",
        about="How often each arm gave each verdict.",
        header=("verdict", *_arms(here)),
        rows=tuple(rows),
    )


def _trouble(here: Spot) -> Table:
    listed = here["trouble"]
    rows = []
    for nth in range(min(len(listed.value), TROUBLE_SHOWN)):
        one = listed[nth]
        behind = query(trial=one.value["trial"])
        pair = one["pair"].cell(str, query(index=one.value["pair"]))
        told = words(one.value["status"]), words(one.value["trial"], behind), words(one.value["because"])
        rows.append((pair, words(one.value["arm"]), *told))
    more = f" The first {TROUBLE_SHOWN} of {len(listed.value)}." if len(listed.value) > TROUBLE_SHOWN else ""
    return Table(
        name="trouble",
        title="Trials that got stuck or were spoiled",
        about="Stuck trials count as they ended. Invalid ones are entered as the worst case against the claim." + more,
        header=("pair", "arm", "status", "trial", "because"),
        rows=tuple(rows),
        labels=5,
        none="" if rows else "Every trial ended.",
    )
