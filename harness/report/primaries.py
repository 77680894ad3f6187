"""The tables of both primaries: estimates with all intervals, differences to the control, harm in operation."""

from __future__ import annotations

from harness.report import grounds
from harness.report.cells import Cell, Form, Spot, Table, narrowed, number, query, share, tokens, words
from harness.report.evidence import DUPLICATES, WORK

PRIMARIES = {DUPLICATES: "duplicate-effect rate", WORK: "tokens destroyed per fault"}


def duplicates(here: Spot) -> Table:
    """Primary 1, by arm."""
    rows = []
    for arm in here.value["arms"]:
        entry, behind = here["primary"][DUPLICATES][arm], query(arm=arm, twin=0)
        counted = entry.of("duplicated", "intended", str, behind)
        counts = counted, entry["duplicates_gross"].cell(str, behind)
        rows.append((words(arm, behind), entry["pairs"].cell(str, behind), *counts, *_estimated(entry, arm, share)))
    about = (
        "Share of intended effects committed more often than required, at every boundary but hooks. "
        f"Gross counts every repetition. {_INTERVALS}"
    )
    table = Table(
        name="primary_duplicates",
        title="Primary 1: duplicate-effect rate",
        about=about,
        header=("arm", "pairs", "duplicated / intended", "gross", *_ESTIMATED),
        rows=tuple(rows),
    )
    return narrowed(table, OPTIONAL)


def work(here: Spot) -> Table:
    """Primary 2, by arm."""
    rows = []
    for arm in here.value["arms"]:
        entry, behind = here["primary"][WORK][arm], query(arm=arm, twin=0)
        destroyed = Cell(
            (entry["tokens_destroyed"].num(tokens), " / ", entry["faults_scheduled"].num(str)),
            query(arm=arm, twin=0, of="work.destroyed"),
        )
        counts = destroyed, entry["trials_cut_at_budget"].cell(str, behind)
        rows.append((words(arm, behind), entry["pairs"].cell(str, behind), *counts, *_estimated(entry, arm, tokens)))
    about = (
        "Tokens of discarded turns that nothing accepted was built on, per scheduled fault; the twin on the same "
        f"scale. Cut: trials that lost more than the largest loss that counts. {_INTERVALS}"
    )
    table = Table(
        name="primary_work",
        title="Primary 2: work destroyed per fault",
        about=about,
        header=("arm", "pairs", "tokens / faults", "cut", *_ESTIMATED),
        rows=tuple(rows),
    )
    return narrowed(table, OPTIONAL)


_ESTIMATED = (
    "estimate [mixture]",
    "[STaR]",
    "[hull]",
    "no-fault twin",
    "both exposed (pairs)",
)
OPTIONAL = ("[STaR]", "[hull]", "ratio [upper bound]", "better / worse / tied")
"""Columns that need more data, or newer statistics, than a run may have."""

_INTERVALS = (
    "Intervals are at 95 %. The mixture holds whenever a run stops, and decides; STaR holds for a fixed size; the hull "
    "is given from 200 pairs on and rests on measured coverage. Both exposed: pairs in which the faults fired in this "
    "arm and in the control."
)


def _estimated(entry: Spot, arm: str, form: Form) -> tuple[Cell, ...]:
    behind, both = query(arm=arm, twin=0), query(arm=arm, twin=0, both=1)
    return (
        entry.ranged(form, behind),
        entry.get("star").interval(form, behind),
        entry.get("hull").interval(form, behind),
        entry["no_fault_twin"].cell(form, query(arm=arm, twin=1)),
        entry["both_exposed"].cell(form, both).then(" (", entry["both_exposed"]["pairs"].num(str), ")"),
    )


def differences(here: Spot, primary: str) -> Table:
    """A primary: the control against each other arm."""
    form = grounds.FORMS[primary]
    listed = here["primary"][primary]["differences"]
    rows = []
    for nth in range(len(listed.value)):
        item = listed[nth]
        control, treatment = item.value["control"], item.value["treatment"]
        behind = query(arm=f"{control},{treatment}", twin=0, paired=treatment)
        rows.append(
            (
                words(f"{control} – {treatment}", behind),
                words(grounds.reading(here, primary, item)),
                item["pairs"].cell(str, behind),
                item.ranged(form, behind),
                item.get("star").interval(form, behind),
                item.get("hull").interval(form, behind),
                item.get("e_value").cell(number, behind),
                _ratio(item.get("ratio"), behind),
                _moved(item, behind),
            )
        )
    about = (
        "Control minus the other arm, on common pairs, on the scale of the primary. An e-value of 20 rejects at 5 % "
        "that there is no gain. Ratio: harm of the other arm as a share of the control's, with its upper bound. "
        "Better / worse / tied: pairs in which the other arm did less harm, more, or the same."
    )
    header = ("difference", "reading", "pairs", "estimate [mixture]", "[STaR]", "[hull]", "e-value")
    table = Table(
        name=f"differences_{primary}",
        title=f"Differences to the control arm: {PRIMARIES[primary]}",
        about=about,
        header=(*header, "ratio [upper bound]", "better / worse / tied"),
        rows=tuple(rows),
        labels=2,
        absent="" if rows else here["primary"][primary]["difference"].because,
    )
    return narrowed(table, OPTIONAL)


def _ratio(entry: Spot, behind: str) -> Cell:
    estimate, upper = entry.get("estimate"), entry.get("upper")
    if estimate.because:
        return Cell((), behind, estimate.because)
    if upper.because:
        return Cell((estimate.num(number),), behind, upper.because)
    return Cell((estimate.num(number), " [≤ ", upper.num(number), "]"), behind)


def _moved(item: Spot, behind: str) -> Cell:
    parts = [item.get(name) for name in ("improved", "worsened", "tied")]
    because = next((part.because for part in parts if part.because), "")
    if because:
        return Cell((), behind, because)
    return Cell((parts[0].num(str), " / ", parts[1].num(str), " / ", parts[2].num(str)), behind)


def operation(here: Spot) -> Table:
    """What the harm means where faults strike as often as the cited sources say."""
    rows = []
    for name, entry in here["decision"]["unconditional"].items():
        cells = [entry.get(f"at_{level}_rates").ranged(share) for level in ("low", "used", "high")]
        rows.append((words(name), entry["threshold"].cell(share), *cells))
    about = (
        "Harm that the control arm does in operation: harm per forced fault, weighted with how often faults strike in "
        "the cited sources. Shares of intended effects, and of a fault-free trial's tokens, of which a faulty one can "
        "lose more than all. Registered rates decide."
    )
    header = ("primary", "threshold", "lowest cited rates", "registered rates", "highest cited rates")
    return Table(name="operation", title="Harm in operation", about=about, header=header, rows=tuple(rows))
