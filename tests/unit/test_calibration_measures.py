"""How calibration runs are looked at: the right word on rows that are made up, and another one when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.calibration import form, measures
from harness.calibration.checks import CHECKS
from harness.calibration.form import Calibration, Check, Judged, NoiseFloor, Planned
from harness.calibration.measures import Roles
from harness.calibration.runs import assess
from harness.core.records import NotApplicable
from harness.report.rows import Row
from tests.unit.synthetic import PREREG, row

ROLES = Roles(through="naive", best="best", exact="exact", merging="merging", suppressing="suppressing")


def rows(arm: str, pairs: int, **more: object) -> tuple[Row, ...]:
    return tuple(row(arm, index, **more) for index in range(pairs))  # type: ignore[arg-type]


def losing(arm: str, pairs: int, lost: int) -> tuple[Row, ...]:
    """Trials without duplicates in which so many transport effects are missing."""
    found = []
    for one in rows(arm, pairs):
        counts = replace(one.boundaries["transport"], observed=4 - lost, lost=lost)
        found.append(replace(one, boundaries={**one.boundaries, "transport": counts}))
    return tuple(found)


def judged(**arms: Sequence[Row]) -> Judged:
    return Judged(prereg=PREREG, rows={name: tuple(some) for name, some in arms.items()}, decision={})


# --- equal arms ---------------------------------------------------------------------------------------------------


def test_the_floor_is_what_random_signs_of_the_pairs_exceed_in_five_percent() -> None:
    """One effect of eleven differs in each of 100 pairs: a mean of 100 signs, whose 95 % point is 20 / 100 or near."""
    floor = measures.floor_of(rows("naive", 100), rows("naive_replica", 100, duplicated=1), PREREG)
    assert isinstance(floor, NoiseFloor)
    assert floor.duplicate_effect_rate == pytest.approx(0.2 / 11, rel=1e-3)
    assert floor.work_destroyed_per_fault == 0.0
    assert floor.pairs == 100
    assert "5%" in floor.because


def test_the_floor_of_work_is_in_tokens_per_scheduled_fault() -> None:
    floor = measures.floor_of(rows("naive", 100), rows("naive_replica", 100, destroyed=1000), PREREG)
    assert isinstance(floor, NoiseFloor)
    assert floor.work_destroyed_per_fault == pytest.approx(0.2 * 1000 / 2, rel=1e-3)


def test_a_pair_with_an_invalid_trial_is_as_far_apart_as_it_can_be() -> None:
    control = list(rows("naive", 40))
    control[0] = replace(control[0], status="invalid", because="spoiled")
    floor = measures.floor_of(control, rows("naive_replica", 40), PREREG)
    assert isinstance(floor, NoiseFloor)
    assert floor.duplicate_effect_rate == pytest.approx(1 / 40)


def test_without_pairs_there_is_no_floor() -> None:
    assert measures.floor_of((), (), PREREG) == NotApplicable("there is no pair of equal arms")


def test_the_floor_grows_for_fewer_pairs_and_does_not_shrink_for_more() -> None:
    floor = NoiseFloor(duplicate_effect_rate=0.01, work_destroyed_per_fault=40.0, pairs=200, because="")
    assert floor.at(50) == {"duplicate_effect_rate": 0.02, "work_destroyed_per_fault": 80.0}
    assert floor.at(800) == {"duplicate_effect_rate": 0.01, "work_destroyed_per_fault": 40.0}


def test_arms_that_differ_in_either_direction_as_chance_would_have_it_are_not_told_apart() -> None:
    control = [row("naive", i, duplicated=i % 2) for i in range(60)]
    replica = [row("naive_replica", i, duplicated=(i + 1) % 2) for i in range(60)]
    found = measures.told_apart("naive_replica")(judged(naive=control, naive_replica=replica))
    assert found.got == "no difference"
    assert found.numbers["duplicate_effect_rate.estimate"] == 0


def test_an_arm_that_is_a_little_worse_in_every_pair_is_told_apart_though_no_interval_shows_it() -> None:
    run = judged(naive=rows("naive", 40), naive_replica=rows("naive_replica", 40, duplicated=1))
    found = measures.told_apart("naive_replica")(run)
    assert found.got == "difference"
    assert (
        float(found.numbers["duplicate_effect_rate.ci_high"]) > 0 > float(found.numbers["duplicate_effect_rate.ci_low"])
    )
    assert found.numbers["duplicate_effect_rate.chance"] == 0


# --- harm and decisions -------------------------------------------------------------------------------------------

HARMED: dict[str, Callable[[Row], Row]] = {
    "a duplicate": lambda r: replace(r, boundaries=row("naive", 0, duplicated=1).boundaries),
    "work": lambda r: replace(r, work=row("naive", 0, destroyed=5).work),
    "a failure": lambda r: replace(r, success=False),
    "a stuck trial": lambda r: replace(r, status="stuck"),
    "a lost effect": lambda r: replace(r, boundaries=losing("naive", 1, 1)[0].boundaries),
}


@pytest.mark.parametrize("spoil", HARMED.values(), ids=HARMED)
def test_any_harm_where_nothing_failed_is_seen(spoil: Callable[[Row], Row]) -> None:
    clean = [replace(one, success=True) for one in rows("naive", 4, fault="none")]
    assert measures.harm(judged(naive=clean)).got == "no harm"
    assert measures.harm(judged(naive=[*clean[:3], spoil(clean[3])])).got == "harm"


def test_no_trial_at_all_is_no_proof() -> None:
    assert measures.harm(judged()).got == "harm"
    assert measures.planted(judged()).got == "wrong"
    assert measures.planted(replace(judged(), plants=1)).got == "all found"
    assert measures.planted(replace(judged(), plants=1, planted=("a row doubled: missed",))).got == "wrong"


def test_one_pair_less_than_registered_decides_nothing_however_harmful() -> None:
    found = measures.too_little_data(judged(naive=rows("naive", 80, duplicated=4)))
    assert (found.got, found.numbers["pairs"]) == ("INCONCLUSIVE", PREREG.design.pairs_min - 1)


# --- ledgers ------------------------------------------------------------------------------------------------------

AGAINST = {
    "fewer duplicates": rows("arm", 60),
    "as many duplicates": rows("arm", 60, duplicated=4),
    "loses effects": losing("arm", 60, 2),
    "undecided": rows("arm", 12),
}


@pytest.mark.parametrize(("expected", "of_arm"), AGAINST.items())
def test_an_arm_against_the_control(expected: str, of_arm: tuple[Row, ...]) -> None:
    """`loses effects` comes first: the arm that loses has no duplicates either."""
    found = measures.against_control("arm")(judged(naive=rows("naive", 60, duplicated=4), arm=of_arm))
    assert found.got == expected


def gate(**other: Sequence[Row]) -> form.Found:
    arms: dict[str, Sequence[Row]] = {
        "naive": rows("naive", 12, duplicated=3),
        "best": rows("best", 12),
        "exact": rows("exact", 12, duplicated=3),
        "merging": losing("merging", 12, 1),
        "suppressing": [
            replace(one, boundaries={n: replace(b, observed=0, lost=b.intended) for n, b in one.boundaries.items()})
            for one in rows("suppressing", 12)
        ],
    }
    return measures.discriminates(ROLES)(judged(**{**arms, **other}))


def test_the_gate_lets_a_workload_pass_that_tells_every_wrong_ledger_from_the_best() -> None:
    found = gate()
    assert found.got == "VALID"
    assert found.numbers["error_exact"] == pytest.approx(3 / 11, rel=1e-5)
    assert (found.numbers["error_best"], found.numbers["error_suppressing"]) == (0, 1)


@pytest.mark.parametrize(
    ("arm", "instead", "because"),
    [
        ("naive", rows("naive", 12), "too few chances"),
        ("exact", rows("exact", 12), "exact bytes does as well"),
        ("merging", rows("merging", 12), "merges does as well"),
        ("suppressing", rows("suppressing", 12), "not found out"),
    ],
)
def test_the_gate_calls_a_workload_invalid_where_a_wrong_arm_does_well(
    arm: str, instead: tuple[Row, ...], because: str
) -> None:
    found = gate(**{arm: instead})
    assert found.got == "INVALID"
    assert because in found.because


def test_a_best_arm_with_an_invalid_trial_proves_nothing() -> None:
    spoiled = [replace(one, status="invalid") for one in rows("best", 12)]
    assert gate(best=spoiled).got == "INVALID"


# --- the whole ----------------------------------------------------------------------------------------------------


def a_check(expected: str) -> Planned:
    return Planned(name="harm", question="?", schedule="s", measure=measures.harm, expected=expected)


def test_one_check_that_fails_fails_the_calibration() -> None:
    clean = judged(naive=[replace(one, success=True) for one in rows("naive", 2, fault="none")])
    assert assess({"s": clean}, checks=[a_check("no harm")]).passed
    found = assess({"s": clean}, checks=[a_check("no harm"), a_check("harm")])
    assert not found.passed
    assert [check.expected for check in found.failed] == ["harm"]
    assert found.noise_floor == {"not_applicable": "the schedule same_arm_twice was not run"}


def test_a_trial_that_was_spoiled_fails_every_check_of_its_run() -> None:
    """Without this a gate that has to say INVALID would be content with a run in which nothing worked."""
    spoiled = judged(naive=[replace(one, status="invalid", because="harness") for one in rows("naive", 2)])
    found = assess({"s": spoiled}, checks=[a_check("harm")])
    assert not found.passed
    assert (found.checks[0].got, found.checks[0].because[:8]) == ("spoiled", "2 trials")


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    check = Check(name="a", question="?", expected="x", got="y", passed=False, because="z", numbers={"n": 1, "e": 0.5})
    floor = NoiseFloor(duplicate_effect_rate=0.01, work_destroyed_per_fault=40.0, pairs=200, because="b")
    for noise in (floor, NotApplicable("not run")):
        described = (
            {"not_applicable": noise.because} if isinstance(noise, NotApplicable) else msgspec.to_builtins(noise)
        )
        one = Calibration(passed=False, checks=(check,), noise_floor=described, schedules={"s": "0" * 64})
        assert one.floor == noise
        form.write(tmp_path / "calibration.json", one)
        assert form.read(tmp_path / "calibration.json") == one


def test_every_check_has_a_name_of_its_own_and_a_schedule_that_is_there() -> None:
    folder = Path(__file__).parents[2] / "schedules" / "calibration"
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {check.schedule for check in CHECKS} == {path.stem for path in folder.glob("*.yaml")}
