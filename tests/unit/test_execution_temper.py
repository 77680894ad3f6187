"""What suites are like: drawn by seed and number of the run, within registered bounds, and read back as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.roles import Manner
from harness.world.live.world import Places
from workloads.common.defects import planted
from workloads.test_execution import temper
from workloads.test_execution.facts import LATENT, SUITES, UNITS, facts
from workloads.test_execution.repository import SERVICES, SOURCE_PATH, files
from workloads.test_execution.task import TEST_EXECUTION, UNTIL_KILLED
from workloads.test_execution.temper import DRAWN_RUNS, FLAKY, HANGING_MS, SHUFFLED, SLOW_MS, Temper, drawn

SEEDS = range(400)
TEST = "suites/test_x.py::test_flow"
KINDS = ("slow", "hanging", "flaky", "steady", "ordered", "stuck")


@pytest.mark.parametrize("kind", KINDS)
def test_a_temper_is_drawn_alike_and_read_as_it_was_written(kind: str) -> None:
    for seed in range(20):
        how = drawn(seed, kind, "suites/a.py")
        assert how == drawn(seed, kind, "suites/a.py")
        assert temper.read({temper.path_of("suites/a.py"): temper.text_of(how)}, "suites/a.py") == how
    assert temper.read({}, "suites/a.py") == Temper()


def test_a_flaky_suite_fails_as_often_as_registered_and_never_twice_in_a_row() -> None:
    failed = free = 0
    for seed in SEEDS:
        fails_on = drawn(seed, "flaky", "suites/a.py").fails_on
        assert not any(run + 1 in fails_on for run in fails_on)
        failed += len(fails_on)
        free += DRAWN_RUNS - sum(run < DRAWN_RUNS for run in fails_on)
    assert abs(failed / free - FLAKY) < 0.02


def test_suites_of_one_seed_have_luck_of_their_own() -> None:
    assert sum(drawn(s, "flaky", "a").fails_on == drawn(s, "flaky", "b").fails_on for s in SEEDS) == 0


def test_an_order_lasts_for_a_block_of_runs() -> None:
    unlucky = 0
    for seed in SEEDS:
        reversed_on = drawn(seed, "ordered", "suites/a.py").reversed_on
        blocks = {(run - 1) // 3 for run in reversed_on}
        assert set(reversed_on) == {run for run in range(1, DRAWN_RUNS + 1) if (run - 1) // 3 in blocks}
        unlucky += 1 in reversed_on
    assert abs(unlucky / len(SEEDS) - SHUFFLED) < 0.08


def test_slow_and_hanging_suites_stay_within_their_bounds() -> None:
    for seed in SEEDS:
        slow, hanging = drawn(seed, "slow", "a"), drawn(seed, "hanging", "a")
        assert all(SLOW_MS[0] <= ms <= SLOW_MS[1] for ms in (slow.before_ms, slow.after_ms))
        assert sorted((hanging.before_ms, hanging.after_ms))[0] == 0
        assert HANGING_MS[0] <= max(hanging.before_ms, hanging.after_ms) <= HANGING_MS[1]
        assert (slow.paced, hanging.paced) == (True, False)
    assert len({drawn(seed, "hanging", "a").after_ms > 0 for seed in SEEDS}) == 2


def test_a_suite_that_waits_until_it_is_killed_does_so_in_every_way() -> None:
    ways = {(t.stuck_after, t.paced, t.stuck_on) for t in (drawn(seed, "stuck", "a") for seed in SEEDS)}
    assert ways == {(after, paced, (1,)) for after in (False, True) for paced in (False, True)}


@pytest.mark.parametrize(
    ("how", "run", "manner"),
    [
        (Temper(before_ms=1.0, after_ms=2.0, paced=True), 1, Manner(before_ms=1.0, after_ms=2.0, paced=True)),
        (Temper(before_ms=1.0, after_ms=2.0, fails_on=(2,)), 2, Manner(failing=(TEST,), before_ms=1.0)),
        (Temper(stuck_on=(1,)), 1, Manner(before_ms=None, after_ms=None)),
        (Temper(before_ms=1.0, stuck_on=(1,), stuck_after=True), 1, Manner(before_ms=1.0, after_ms=None)),
        (Temper(stuck_on=(1,)), 2, Manner()),
    ],
)
def test_manners_follow_from_the_temper_and_the_number_of_the_run(how: Temper, run: int, manner: Manner) -> None:
    assert how.manner(run, TEST) == manner


def test_the_order_dependent_suite_fails_of_what_is_left_over_and_in_reverse_only() -> None:
    check = TEST_EXECUTION.task(1, 3).check("unit_payments")
    assert check is not None
    texts = files(facts(1)) | {temper.path_of(check.target): temper.text_of(Temper(reversed_on=(2,)))}
    for source, failing in ((planted(SERVICES["payments"], [LATENT]), (f"{check.target}::test_empty",)), ("", ())):
        texts[SOURCE_PATH["payments"]] = source
        assert TEST_EXECUTION.manner(check, texts, 1).failing == ()
        assert TEST_EXECUTION.manner(check, texts, 2).failing == failing


def test_every_suite_but_the_acceptance_has_a_temper_beside_it() -> None:
    texts = TEST_EXECUTION.task(3, 3).files
    assert {p for p in texts if p.startswith("suites/") and p.endswith(".json")} == {
        temper.path_of(target) for target in (*SUITES.values(), *UNITS.values())
    }


def test_only_the_variant_has_suites_that_never_return_by_themselves() -> None:
    for seed in range(50):
        assert not any(t.stuck_on for t in TEST_EXECUTION.facts(seed).tempers.values())
        assert sum(bool(t.stuck_on) for t in UNTIL_KILLED.facts(seed).tempers.values()) == 1


def test_runs_are_counted_by_delegation_and_over_all_lives(tmp_path: Path) -> None:
    assert [Places(tmp_path).count_run("a/b", "unit") for _ in range(3)] == [1, 2, 3]
    assert [Places(tmp_path).count_run("a", "unit"), Places(tmp_path).count_run("a/b", "other")] == [1, 1]
