"""Tables of where harm and blame lie: by variation level, guard and chain of links; and what a run could have shown.

Their keys are optional in `summary.json`. Those whose inner shape is not fixed are laid out as they are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.metrics.blame import CELLS, name_of
from harness.report.cells import Cell, Spot, Table, number, query, share, words
from harness.report.grounds import FORMS


def levels(here: Spot) -> Table:
    """What goes wrong by variation level, per arm: events among their chances."""
    found = here.get("levels")
    listed = [(level, arm, entry) for level, arms in found.items() for arm, entry in arms.items()]
    events = list(dict.fromkeys(name for _, _, entry in listed for name, event in entry.items() if "count" in event))
    rows = []
    for level, arm, entry in listed:
        behind = query(level=level.lstrip("L"), arm=arm, twin=0)
        cells = [_event(entry.get(name), behind) for name in events]
        rows.append((words(level), words(arm, behind), entry.get("trials").cell(str, behind), *cells))
    about = (
        "How much the agent's wording varies: L0 is byte-identical, each level adds to the one before. Events among "
        "their chances; where no trial had one, the share of trials that may have it is bounded by the rule of three."
    )
    return Table(
        name="levels",
        title="By variation level",
        about=about if rows else "",
        header=("level", "arm", "trials", *(name.replace("_", " ") for name in events)),
        rows=tuple(rows),
        labels=2,
        absent="" if rows else found.because or "no trial is valid",
    )


def _event(event: Spot, behind: str) -> Cell:
    counted = event.of("count", "among", str, behind)
    if counted.because:
        return counted
    most, rate = event.get("share_of_trials_at_most"), event.get("rate")
    if not most.because:
        return counted.then(" [≤ ", most.num(share), " of trials]")
    return counted if rate.because else Cell((rate.num(share), " (", *counted.parts, ")"), behind)


def blame(here: Spot) -> Table:
    """Whom each guard of an arm struck: those that were stuck, or those that were not."""
    found, arms = here.get("blame"), here.value["arms"]
    guards = list(dict.fromkeys(guard for arm in arms for guard, _ in found.get(arm).items()))
    rows = []
    for guard in guards:
        for arm in arms:
            entry, behind = found.get(arm, guard), query(arm=arm, twin=0)
            cells = [entry.get(cell).cell(str, _counted(guard, cell, behind)) for cell in CELLS]
            shares = [entry.get(name).cell(share, behind) for name in ("precision", "recall")]
            rows.append((words(guard), words(arm, behind), *cells, *shares, entry.get("trials").cell(str, behind)))
    return Table(
        name="blame",
        title="Blame matrix",
        about="Whom each guard struck, summed over trials: healthy killed is a false stop, guilty spared a missed one."
        if rows
        else "",
        header=("guard", "arm", *(cell.replace("_", " ") for cell in CELLS), "precision", "recall", "trials"),
        rows=tuple(rows),
        labels=2,
        absent="" if rows else found.because or "nothing was judged",
    )


def _counted(guard: str, cell: str, behind: str) -> str:
    return f"{behind}&{query(of=f'metric.{name_of(guard, cell)}')}"


def dependence(here: Spot) -> Table:
    """Bounds on the chance that a whole chain is clean, with and without assuming independence."""
    found = here.get("dependence")
    rows = []
    for arm, chain in found.items():
        behind = query(arm=arm, twin=0)
        bounds = [chain.get(name).cell(share, behind) for name in ("certificate", "direct")]
        observed = chain.ranged(share, behind, of="observed")
        links = _joined([(f"{name} ", spot) for name, spot in chain.get("links").items()])
        told = chain.value.get("because", "") if not chain.because else ""
        counts = chain.get("trials").cell(str, behind)
        rows.append(
            (
                words(arm, behind),
                counts,
                *bounds,
                observed,
                chain.get("product").cell(share, behind),
                links,
                words(told or ("" if chain.because else "independence is not contradicted")),
            )
        )
    about = (
        "Chance that every link of a chain holds; a link is a delegation. The certificate, a linear program, assumes "
        "nothing of how links depend on each other; the direct bound needs whole chains to have been run; the product "
        "assumes independence, and promises too much where it lies above the interval of what was observed."
    )
    return Table(
        name="dependence",
        title="Dependence between links",
        about=about if rows else "",
        header=(
            "arm",
            "trials",
            "certificate",
            "direct bound",
            "observed [95 %]",
            "product",
            "rate of each link",
            "reading",
        ),
        rows=tuple(rows),
        absent="" if rows else found.because or "there is no chain",
    )


def _joined(named: Sequence[tuple[str, Spot]]) -> Cell:
    parts: list[Any] = []
    for name, spot in named:
        parts += ["; "] if parts else []
        parts += [name, spot.num(share)]
    return Cell(tuple(parts))


def power(here: Spot) -> Table:
    """What a run of this size could have shown."""
    return _grid(here.get("power"), "power", "Power", "What runs of this and other sizes can show.", ("claim",))


# --- tables of any shape ------------------------------------------------------------------------------------------


def _grid(
    found: Spot, name: str, title: str, about: str, labels: Sequence[str], behind: Any = lambda path: ""
) -> Table:
    """A table of nested mappings: one level of them per label, the rest becomes columns."""
    rows, header = [], list[str]()
    listed = [(path, dict(_leaves(spot))) for path, spot in _below(found, len(labels))]
    for _, leaves in listed:
        header += [key for key in leaves if key not in header]
    for path, leaves in listed:
        cells = [_any(leaves[key], key, behind(path)) if key in leaves else Cell((), "", "not given") for key in header]
        heads = [*path, *[""] * (len(labels) - len(path))]
        rows.append((*(words(head, behind(path) if head else "") for head in heads), *cells))
    return Table(
        name=name,
        title=title,
        about=about if rows else "",
        header=(*labels, *(key.replace("_", " ") for key in header)),
        rows=tuple(rows),
        labels=len(labels),
        absent="" if rows else found.because or "nothing to show",
    )


def _below(spot: Spot, depth: int, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Spot]]:
    if not depth:
        yield path, spot
        return
    for name, entry in spot.items():
        if isinstance(entry.value, Mapping) and not _is_leaf(entry):
            yield from _below(entry, depth - 1, (*path, name))
        else:
            yield (*path, name), entry


def _leaves(spot: Spot, path: str = "") -> Iterator[tuple[str, Spot]]:
    if _is_leaf(spot):
        yield path or "value", spot
        return
    for name, entry in spot.items():
        yield from _leaves(entry, f"{path} {name}".strip())


def _is_leaf(spot: Spot) -> bool:
    value = spot.value
    return not isinstance(value, Mapping) or "not_applicable" in value or "estimate" in value


def _any(spot: Spot, key: str, behind: str) -> Cell:
    value, form = spot.value, next((form for name, form in FORMS.items() if name in key), number)
    if spot.because:
        return Cell((), behind, spot.because)
    if isinstance(value, Mapping):
        return spot.ranged(form, behind) if "ci_low" in value else spot.cell(form, behind)
    if isinstance(value, bool):
        return words("yes" if value else "no", behind)
    if isinstance(value, int | float):
        return spot.cell(form, behind)
    return words(", ".join(map(str, value)) if isinstance(value, list) else value, behind)
