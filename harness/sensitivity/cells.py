"""What came out at one level: counts, pooled over the trials of one ledger and workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from harness.core.records import TAKEN_FOR_REPETITIONS, ScoredTrial
from harness.metrics.effects import PRIMARY_BOUNDARIES, primary

DEFEATED = 0.1
"""A level defeats a ledger where it does not know more than this share of repeated asks again, or where that share of
the intended effects more is duplicated than at its best level. The first was chosen before any run: what is left of a
harm by nine tenths is no longer one order of magnitude below it. The second was added when a run had shown a level at
which few misses made many duplicates."""


class Cell(Struct, frozen=True, kw_only=True):
    """One ledger (an arm) on one workload at one level. trials: judged ones. invalid: those that our own machinery
    spoiled. intended, duplicated, suppressed: effects at the primary boundaries; suppressed: lost since they were taken
    for repetitions. asked_again, missed: repeated asks, and those that were executed once more. pairs, merged: pairs of
    distinct intended effects, and those that were taken for one."""

    workload: str
    level: int
    arm: str
    trials: int = 0
    invalid: int = 0
    intended: int = 0
    duplicated: int = 0
    suppressed: int = 0
    asked_again: int = 0
    missed: int = 0
    pairs: int = 0
    merged: int = 0

    @property
    def duplicate_rate(self) -> float | None:
        """None, here and below, where there was no occasion."""
        return self.duplicated / self.intended if self.intended else None

    @property
    def miss_rate(self) -> float | None:
        return self.missed / self.asked_again if self.asked_again else None

    @property
    def collision_rate(self) -> float | None:
        return self.merged / self.pairs if self.pairs else None

    @property
    def suppressed_rate(self) -> float | None:
        return self.suppressed / self.intended if self.intended else None


def pooled(cell: Cell, scored: ScoredTrial) -> Cell:
    """The cell with one more trial."""
    if scored.trial.record.status == "invalid":
        return replace(cell, invalid=cell.invalid + 1)
    found = primary(scored.findings)
    counts = [scored.recognition[name] for name in PRIMARY_BOUNDARIES if name in scored.recognition]
    return replace(
        cell,
        trials=cell.trials + 1,
        intended=cell.intended + sum(f.required for f in found),
        duplicated=cell.duplicated + sum(f.duplicated for f in found),
        suppressed=cell.suppressed + sum(f.lost for f in found if f.status in TAKEN_FOR_REPETITIONS),
        asked_again=cell.asked_again + sum(c.regenerated for c in counts),
        missed=cell.missed + sum(c.missed for c in counts),
        pairs=cell.pairs + sum(c.pairs for c in counts),
        merged=cell.merged + sum(c.merged for c in counts),
    )


def defeated(cells: Iterable[Cell]) -> list[str]:
    """Where a level defeats a ledger, a sentence for each workload and arm: what somebody who trusts it must know."""
    by_ledger: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_ledger.setdefault((cell.workload, cell.arm), []).append(cell)
    return [_sentence(workload, arm, held) for (workload, arm), held in by_ledger.items()]


def _sentence(workload: str, arm: str, held: Sequence[Cell]) -> str:
    least = min((cell.duplicate_rate or 0.0 for cell in held), default=0.0)
    missing = [c for c in held if (c.miss_rate or 0.0) > DEFEATED or (c.duplicate_rate or 0.0) - least > DEFEATED]
    merging = [cell for cell in held if cell.merged]
    worst = max(held, key=lambda cell: cell.miss_rate or 0.0)
    missed = f"{worst.missed} of {worst.asked_again} repeated asks not known again"
    said = []
    if missing:
        levels = ", ".join(f"L{cell.level}" for cell in missing)
        said.append(f"defeated at {levels} (at worst {missed})")
    if merging:
        levels = ", ".join(f"L{cell.level}" for cell in merging)
        said.append(f"takes distinct effects for one at {levels}")
    if not said:
        said.append("not defeated at any level that was looked at" + (f" (at worst {missed})" if worst.missed else ""))
    return f"{arm} on {workload}: {'; '.join(said)}"
