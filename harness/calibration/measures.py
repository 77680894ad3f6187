"""How a judged calibration run is looked at: pure functions from its rows to one of a few words and the numbers behind.

Nothing is estimated in a way of its own: the comparisons and decisions are those of the report, by the registration
that the schedule names, so that what passes here is what decides later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from harness.calibration.form import Found, Judged, Measure, NoiseFloor, Number
from harness.core.records import NotApplicable
from harness.metrics.effects import PRIMARY_BOUNDARIES
from harness.report import decision as decisions
from harness.report.evidence import DUPLICATES, WORK, difference, pair_differences, scales, series
from harness.report.prereg import Prereg
from harness.report.rows import Row
from harness.stats.betting import Array

Rows = Sequence[Row]

LOST = "lost_incidence"


def rounded(value: float) -> float:
    """Six significant digits: what is left is equal on every processor."""
    return float(f"{value:.6g}")


# --- equal arms ---------------------------------------------------------------------------------------------------

FLIPS, SEED = 10_000, 20_260_101
"""How many of the 2^n ways to name the two arms of n pairs are looked at, and which."""

TOLD_APART = 0.001
"""Chance at which equal arms are taken for different ones, for each primary. Small, since a calibration is made before
each claim, and its seeds are fixed: an alarm is to be worth looking into."""


def floor_of(control: Rows, replica: Rows, prereg: Prereg) -> NoiseFloor | NotApplicable:
    """The noise floor of both primaries: the difference that two equal arms exceed with the registered chance (5 %) on
    so many pairs, by nothing but which of the two is called the control.

    control, replica: rows of common pairs of an arm and of its replica with an independent agent, in registered order;
    of a pair with an invalid trial the worst is taken. Not applicable where there is no pair. Source: the randomization
    distribution of a paired difference (Fisher, The Design of Experiments, 1935): under equality each sign of a pair's
    difference is as good as the other. It says how far apart noise alone puts two arms; that a difference is no noise
    is for the registered claims to show, which hold at every number of pairs.
    """
    if not control:
        return NotApplicable("there is no pair of equal arms")
    alpha = prereg.errors.interval
    floors = {
        scale.name: rounded(float(np.quantile(_by_chance(apart), 1 - alpha, method="higher")) * scale.unit)
        for scale, apart in zip(scales(prereg), _apart(control, replica, prereg), strict=True)
    }
    return NoiseFloor(
        duplicate_effect_rate=floors[DUPLICATES],
        work_destroyed_per_fault=floors[WORK],
        pairs=len(control),
        because=f"equal arms differ by more in {alpha:.0%} of runs of {len(control)} pairs",
    )


def _apart(control: Rows, replica: Rows, prereg: Prereg) -> Iterator[Array]:
    """How far apart the two trials of each pair are in each primary, on the scale of scores, shape (n,)."""
    for scale in scales(prereg):
        worst, best = pair_differences(series(control, scale), series(replica, scale))
        yield np.maximum(np.abs(worst), np.abs(best))


def _by_chance(apart: Array) -> Array:
    """Mean differences, without their sign, under random signs of the pairs, shape (FLIPS,)."""
    rng = np.random.default_rng(SEED)
    signs = 2.0 * rng.integers(0, 2, size=(FLIPS, len(apart))) - 1
    return np.abs(signs @ apart) / len(apart)


def told_apart(other: str) -> Measure:
    """Whether the control and the arm `other` are told apart: by an interval of their difference that leaves zero out,
    by a registered claim, or by a difference that equal arms hardly ever show. `no difference`, `difference`."""

    def measure(run: Judged) -> Found:
        control, replica = common(run, other)
        apart, numbers = list[str](), dict[str, Number](pairs=len(control))
        for scale, distances in zip(scales(run.prereg), _apart(control, replica, run.prereg), strict=True):
            found = difference(series(control, scale), series(replica, scale), run.prereg.errors.interval)
            if isinstance(found, str):
                return Found(got="difference", because=found)
            interval = found[0]
            chance = float(np.mean(_by_chance(distances) >= abs(interval.estimate) * (1 - 1e-9)))
            if interval.low > 0 or interval.high < 0 or chance < TOLD_APART:
                apart.append(scale.name)
            shown = {**decisions.shown(interval.scaled(scale.unit)), "chance": chance}
            numbers |= {f"{scale.name}.{key}": rounded(value) for key, value in shown.items()}
        for first, second in ((control, replica), (replica, control)):
            claims = decisions.phase_two(first, second, run.prereg)
            apart += [*claims["superiority"]["on"], *claims["non_inferiority"]["worse"]]
        said = f"told apart by {', '.join(dict.fromkeys(apart))}" if apart else "within what equal arms show by chance"
        return Found(got="difference" if apart else "no difference", because=said, numbers=numbers)

    return measure


# --- harm, and the decision on it ---------------------------------------------------------------------------------


def harm(run: Judged) -> Found:
    """Whether anything at all went wrong in any trial: `no harm`, `harm`."""
    rows = [row for arm in run.rows.values() for row in arm]
    counts: dict[str, Number] = {
        "trials": len(rows),
        "not_ended": sum(row.status != "ended" for row in rows),
        "failed": sum(not row.success for row in rows),
        "tokens_destroyed": sum(row.work.destroyed for row in rows),
    }
    for name in ("gross", "lost", "phantom"):
        counts[name] = sum(getattr(b, name) for row in rows for b in row.boundaries.values())
    wrong = [f"{name} {value}" for name, value in counts.items() if name != "trials" and value]
    said = ", ".join(wrong) if wrong else "every effect once, every task done, nothing discarded"
    return Found(got="harm" if wrong or not rows else "no harm", because=said, numbers=counts)


def kill_criterion(run: Judged) -> Found:
    """The registered decision on the run, as its report gives it."""
    decided = run.decision
    numbers: dict[str, Number] = {"pairs": decided["pairs_used"], "decided_at_pair": decided["decided_at_pair"]}
    numbers |= {name: rounded(decided[name]) for name in ("e_go", "e_stop")}
    because = next((reason for reason in decided["reasons"][1:]), "").removeprefix("phase 1: ")
    return Found(got=decided["kill_criterion"], because=because, numbers=numbers)


def too_little_data(run: Judged) -> Found:
    """The decision on one pair less than the registered least."""
    control = run.rows[run.prereg.arms.control][: run.prereg.design.pairs_min - 1]
    decided = decisions.kill_criterion(control, run.prereg, ())
    return Found(got=decided.outcome, because=decided.reasons[0], numbers={"pairs": len(control)})


def planted(run: Judged) -> Found:
    """Whether the oracle found harm that was planted in trials without any: `all found`, `wrong`."""
    said = "; ".join(run.planted[:3]) or "each effect doubled, dropped, swapped and renamed, one at a time"
    fine = run.plants > 0 and not run.planted
    return Found(got="all found" if fine else "wrong", because=said, numbers={"trials": run.plants})


# --- ledgers ------------------------------------------------------------------------------------------------------


def against_control(arm: str) -> Measure:
    """How an arm does against the control on their common pairs. `loses effects`: shown to lose more than the margin,
    whatever else it does; `fewer duplicates`: shown; `as many duplicates`: not shown, and not even so in these pairs;
    `undecided`."""

    def measure(run: Judged) -> Found:
        control, rows = common(run, arm)
        phase_two = decisions.phase_two(control, rows, run.prereg)
        evidence = {one["name"]: one["e_value"] for one in phase_two["superiority"]["claims"]}
        duplicated = [sum(row.duplicated for row in some) for some in (control, rows)]
        if LOST in phase_two["non_inferiority"]["worse"]:
            got = "loses effects"
        elif DUPLICATES in phase_two["superiority"]["on"]:
            got = "fewer duplicates"
        elif duplicated[0] and duplicated[1] >= run.prereg.claims.superiority_rho * duplicated[0]:
            got = "as many duplicates"
        else:
            got = "undecided"
        numbers: dict[str, Number] = {
            "pairs": len(rows),
            "duplicated_control": duplicated[0],
            "duplicated": duplicated[1],
            "lost": sum(row.lost for row in rows),
            "intended": sum(row.intended for row in rows),
            "evidence_of_fewer_duplicates": rounded(evidence[DUPLICATES]),
        }
        said = f"{duplicated[1]} effects duplicated, {duplicated[0]} by the control; {numbers['lost']} lost"
        return Found(got=got, because=said, numbers=numbers)

    return measure


class Roles(Struct, frozen=True, kw_only=True):
    """Which arm plays which part before the gate. best: knows the names that the oracle goes by."""

    through: str
    best: str
    exact: str
    merging: str
    suppressing: str


OPPORTUNITY_MIN, APART_MIN, SUPPRESSED_MIN = 0.05, 0.02, 0.9
"""Registered with the gate (statistics B.2 `discriminates`), as shares of the intended effects."""


def exactly_once_error(rows: Rows) -> float:
    """EO_error: share of intended effects at the primary boundaries that were duplicated or lost, plus phantoms. An
    invalid trial counts as all wrong."""
    here = [row.boundaries[name] for row in rows for name in PRIMARY_BOUNDARIES if name in row.boundaries]
    intended = sum(b.intended for b in here)
    wrong = sum(b.duplicated + b.lost + b.phantom for b in here)
    return wrong / intended if intended and all(row.valid for row in rows) else 1.0


def discriminates(roles: Roles) -> Measure:
    """Whether a workload can tell ledgers apart at all: `VALID`, `INVALID`.

    It must give opportunities (the control duplicates at least 5 %), repeats in other words (a ledger of exact bytes is
    at least 0.02 worse than the best), effects that are intended twice (so is one that merges), and an oracle that is
    not taken in by receipts (an arm that suppresses everything is 0.9 wrong). Source: statistics B.2 and D.2; the third
    is the same for decoys of the other kind.
    """

    def measure(run: Judged) -> Found:
        pairs = min(len(run.rows[arm]) for arm in (roles.through, roles.best, roles.exact, roles.merging))
        rows = {part: run.rows[arm][:pairs] for part, arm in _parts(roles).items()}
        error = {part: exactly_once_error(some) for part, some in rows.items()}
        control = rows["through"]
        incidence = sum(row.duplicated for row in control) / max(1, sum(row.intended for row in control))
        conditions = {
            "the control has too few chances to repeat an effect": incidence >= OPPORTUNITY_MIN,
            "a ledger of exact bytes does as well as the best": error["exact"] - error["best"] >= APART_MIN,
            "a ledger that merges does as well as the best": error["merging"] - error["best"] >= APART_MIN,
            "an arm that suppresses everything is not found out": error["suppressing"] >= SUPPRESSED_MIN,
        }
        failed = [said for said, holds in conditions.items() if not holds]
        numbers: dict[str, Number] = {"pairs": pairs, "duplicates_control": rounded(incidence)}
        numbers |= {f"error_{part}": rounded(value) for part, value in error.items()}
        said = "; ".join(failed) or "wrong ledgers of every kind are told from the best"
        return Found(got="INVALID" if failed else "VALID", because=said, numbers=numbers)

    return measure


def _parts(roles: Roles) -> Mapping[str, str]:
    return {name: getattr(roles, name) for name in roles.__struct_fields__}


def common(run: Judged, arm: str) -> tuple[Rows, Rows]:
    """Rows of the control and of an arm over their common pairs."""
    control, rows = run.rows[run.prereg.arms.control], run.rows[arm]
    pairs = min(len(control), len(rows))
    return control[:pairs], rows[:pairs]
