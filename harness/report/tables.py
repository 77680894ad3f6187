"""The tables of the report, as plain text cells: one shape for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from harness.core.types import BOUNDARIES
from harness.metrics import METRICS
from harness.report.ablation import sentences, worse
from harness.report.evidence import DUPLICATES, WORK

ABSENT = "–"
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


class Table(Struct, frozen=True):
    """A titled table. The first `labels` columns are words, the others numbers."""

    title: str
    about: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """All tables of the report, in reading order."""
    listed = [
        _duplicates(summary),
        _work(summary),
        _operation(summary),
        _differences(summary),
        _ablation(summary),
        _by_fault(summary),
        _by_boundary(summary),
        _metrics(summary, "Lost, stale and wrongly suppressed effects; task success", GUARDS, "Means per trial."),
        _metrics(summary, "Other metrics", _others(summary), "Means over the trials that have a value."),
        _verdicts(summary),
        _trouble(summary),
    ]
    return [table for table in listed if table.rows]


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %" if abs(value) >= 0.1 else f"{100 * value:.2f} %"


def tokens(value: float) -> str:
    """A number of tokens."""
    return f"{value:,.0f}"


def number(value: float) -> str:
    """Any number, short."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def ranged(entry: Mapping[str, Any], form: Any) -> str:
    """Estimate with its interval, or a dash."""
    if "estimate" not in entry:
        return ABSENT
    return f"{form(entry['estimate'])} [{form(entry['ci_low'])}, {form(entry['ci_high'])}]"


def _bare(entry: Mapping[str, Any], form: Any) -> str:
    return form(entry["estimate"]) if "estimate" in entry else ABSENT


def _duplicates(summary: Mapping[str, Any]) -> Table:
    rows = []
    for arm in summary["arms"]:
        entry = summary["primary"][DUPLICATES][arm]
        both = entry["both_exposed"]
        rows.append(
            (
                arm,
                str(entry["pairs"]),
                ranged(entry, share),
                f"{entry['duplicated']} / {entry['intended']}",
                str(entry["duplicates_gross"]),
                _bare(entry["no_fault_twin"], share),
                f"{_bare(both, share)} ({both['pairs']})",
            )
        )
    header = ("arm", "pairs", "rate [95 % interval]", "duplicated / intended", "gross", "no-fault twin", "both exposed")
    about = (
        "Share of intended effects committed more often than required, at transport, database, registry and provider. "
        "Gross counts every repetition. Both exposed: pairs in which the faults fired in this arm and in the control."
    )
    return Table("Primary 1: duplicate-effect rate", about, header, tuple(rows))


def _work(summary: Mapping[str, Any]) -> Table:
    rows = []
    for arm in summary["arms"]:
        entry = summary["primary"][WORK][arm]
        both = entry["both_exposed"]
        rows.append(
            (
                arm,
                str(entry["pairs"]),
                ranged(entry, tokens),
                f"{tokens(entry['tokens_destroyed'])} / {entry['faults_scheduled']}",
                _bare(entry["no_fault_twin"], tokens),
                f"{_bare(both, tokens)} ({both['pairs']})",
                str(entry["trials_cut_at_budget"]),
            )
        )
    header = (
        "arm",
        "pairs",
        "tokens per fault [95 % interval]",
        "tokens / faults",
        "no-fault twin",
        "both exposed",
        "cut",
    )
    about = (
        "Tokens of discarded turns that nothing accepted was built on, per scheduled fault. Twin: the same for trials "
        "without faults, on the same scale. Cut: trials that lost more than the largest loss that counts."
    )
    return Table("Primary 2: work destroyed per fault", about, header, tuple(rows))


def _operation(summary: Mapping[str, Any]) -> Table:
    rows = []
    for name, entry in summary["decision"]["unconditional"].items():
        cells = [ranged(entry.get(f"at_{level}_rates", {}), share) for level in ("low", "used", "high")]
        rows.append((name, share(entry["threshold"]), *cells))
    header = ("primary", "threshold", "lowest cited rates", "registered rates", "highest cited rates")
    about = (
        "Harm that the control arm does in operation: harm per forced fault, weighted with how often faults strike in "
        "the cited sources. Shares of intended effects, and of a fault-free trial's tokens. Registered rates decide."
    )
    return Table("Harm in operation", about, header, tuple(rows))


def _differences(summary: Mapping[str, Any]) -> Table:
    duplicates = {item["treatment"]: item for item in summary["primary"][DUPLICATES]["differences"]}
    rows = []
    for item in summary["primary"][WORK]["differences"]:
        other = duplicates[item["treatment"]]
        evidence = [number(entry["e_value"]) if "e_value" in entry else ABSENT for entry in (other, item)]
        rows.append(
            (
                f"{item['control']} – {item['treatment']}",
                str(item["pairs"]),
                ranged(other, share),
                evidence[0],
                ranged(item, tokens),
                evidence[1],
            )
        )
    header = ("difference", "pairs", "duplicate-effect rate", "e-value", "tokens destroyed per fault", "e-value")
    about = "Control minus the other arm, on common pairs. An e-value of 20 rejects at 5 % that there is no gain."
    return Table("Differences to the control arm", about, header, tuple(rows))


def _ablation(summary: Mapping[str, Any]) -> Table:
    found = summary.get("ablation") or {"of": "", "arms": {}}
    shown = [name for name in next(iter(found["arms"].values()), {}) if name in METRICS]
    rows = [(arm, *(_apart(metrics[name], name) for name in shown)) for arm, metrics in found["arms"].items()]
    said = " ".join(f"{sentence}." for sentence in sentences(found)) if rows else ""
    about = (
        f"Each variant minus {found['of']} per trial, mean over common pairs, with the half width of a normal 95 % "
        "interval, for orientation: a star marks what is worse beyond it, which the part that was left out buys, and a "
        f"circle what is better, which it costs. {said}"
    )
    return Table("Ablation: what each primitive buys and costs", about.strip(), ("variant", *shown), tuple(rows))


def _apart(entry: Mapping[str, Any], metric: str) -> str:
    if "difference" not in entry:
        return ABSENT
    half = (entry["ci_high"] - entry["ci_low"]) / 2
    clear = entry["ci_low"] > 0 or entry["ci_high"] < 0
    sign = "" if not clear else " *" if worse(entry, metric) else " o"
    return f"{entry['difference']:+,.3g} ± {half:,.2g}{sign}"


def _by_fault(summary: Mapping[str, Any]) -> Table:
    rows = []
    for fault, arms in summary["by_fault"].items():
        for arm in summary["arms"]:
            entry = arms[arm]
            exposure = entry["exposure"]
            if exposure["trials"]:
                rows.append(
                    (
                        fault,
                        arm,
                        ranged(entry[DUPLICATES], share),
                        ranged(entry[WORK], tokens),
                        f"{exposure['exposed']} / {exposure['trials']}",
                    )
                )
    header = ("fault", "arm", "duplicate-effect rate", "tokens destroyed per fault", "exposed / trials")
    return Table("By fault class", "Both primaries, with 95 % intervals.", header, tuple(rows), labels=2)


def _by_boundary(summary: Mapping[str, Any]) -> Table:
    keys = ("intended", "observed", "duplicates", "duplicates_gross", "lost", "stale")
    rows = [
        (name, arm, *(str(summary["by_boundary"][name][arm][key]) for key in keys))
        for name in BOUNDARIES
        for arm in summary["arms"]
        if summary["by_boundary"][name][arm]["intended"] or summary["by_boundary"][name][arm]["observed"]
    ]
    about = "Counts over all pairs. The hook boundary is not part of the primary rate."
    header = ("boundary", "arm", *(key.replace("duplicates_gross", "gross") for key in keys))
    return Table("By boundary", about, header, tuple(rows), labels=2)


def _others(summary: Mapping[str, Any]) -> list[str]:
    return [name for name in summary["secondary"] if name not in GUARDS and not name.startswith("verdict_")]


def _metrics(summary: Mapping[str, Any], title: str, names: Sequence[str], about: str) -> Table:
    rows = []
    for name in names:
        by_arm = summary["secondary"][name]
        unit = next(iter(by_arm.values()))["unit"]
        cells = [_bare(by_arm[arm], share if unit.startswith("share") else number) for arm in summary["arms"]]
        rows.append((name, unit, *cells))
    return Table(title, about, ("metric", "unit", *summary["arms"]), tuple(rows), labels=2)


def _verdicts(summary: Mapping[str, Any]) -> Table:
    said = sorted({verdict for counts in summary["verdicts"].values() for verdict in counts})
    rows = [(v, *(str(summary["verdicts"][arm].get(v, 0)) for arm in summary["arms"])) for v in said]
    return Table("Verdicts", "How often each arm gave each verdict.", ("verdict", *summary["arms"]), tuple(rows))


def _trouble(summary: Mapping[str, Any]) -> Table:
    listed = summary["trouble"]
    rows = [(str(t["pair"]), t["arm"], t["status"], t["trial"], t["because"]) for t in listed[:TROUBLE_SHOWN]]
    more = f" The first {TROUBLE_SHOWN} of {len(listed)}." if len(listed) > TROUBLE_SHOWN else ""
    about = "Stuck trials count as they ended. Invalid ones are entered as the worst case against the claim." + more
    return Table("What went wrong", about, ("pair", "arm", "status", "trial", "because"), tuple(rows), labels=5)
