"""Per-attempt and per-boundary rates: exact figures of a quoted table, its contradictions, and a table of runs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.stats.boundary import Crossings, RunCrossings, contradictions, single_retry, sizes, table


def test_sixty_one_first_failures() -> None:
    found = single_retry(5200, 61, 44, 38)
    assert (found.attempts, found.failed, found.unclean) == (5244, 67, 23)
    assert found.attempt_rate == Fraction(5177, 5244)
    assert found.boundary_rate == Fraction(5177, 5200)
    assert round(float(found.attempt_rate), 4) == 0.9872
    assert round(float(found.boundary_rate), 4) == 0.9956


def test_sixty_one_failures_with_those_of_the_retries() -> None:
    found = single_retry(5200, 55, 44, 38)
    assert (found.failed, found.unclean) == (61, 17)
    assert found.attempt_rate == Fraction(5183, 5244)
    assert found.boundary_rate == Fraction(5183, 5200)


def test_quoted_rates_and_retries_leave_few_sizes() -> None:
    found = list(sizes("96.3", "99.1", 44, 3000))
    assert (found[0].boundaries, found[-1].boundaries) == (1477, 1545)
    assert {c.failed for c in found} == {57, 58}
    assert {c.unclean for c in found} == {13, 14}


def test_the_quoted_number_of_boundaries_needs_other_retries() -> None:
    fitting = [(r, c) for r in range(130, 170) for c in sizes("96.3", "99.1", r, 5200) if c.boundaries == 5200]
    assert {r for r, _ in fitting} == set(range(147, 156))
    assert {c.failed for _, c in fitting} == set(range(196, 201))
    assert {c.unclean for _, c in fitting} == set(range(45, 50))


@pytest.mark.parametrize("unclean", [17, 23])
def test_no_size_gives_both_rates_with_the_quoted_failures(unclean: int) -> None:
    assert not [c for c in sizes("96.3", "99.1", 44, 6000) if c.unclean == unclean]


def test_counts_that_break_the_identity_are_named() -> None:
    assert contradictions(5200, 5244, 61, 17) == ()
    assert "44" in contradictions(5200, 5244, 61, 23)[0]
    assert contradictions(10, 9, 0, 0) == ("9 attempts at 10 boundaries: each is attempted at least once",)
    with pytest.raises(ValueError, match="these are equal"):
        Crossings(5200, 5244, 61, 23)
    with pytest.raises(ValueError, match="clean retries <= retries"):
        single_retry(10, 3, 4, 1)


def test_a_table_of_runs() -> None:
    good, retried, broken = (True,), (False, True), (False, False)
    runs = [
        RunCrossings(True, [good, good]),
        RunCrossings(True, [good, broken]),
        RunCrossings(False, [retried, good]),
        RunCrossings(False, [broken, good]),
    ]
    found = table(runs)
    assert (found.counts.boundaries, found.counts.attempts, found.counts.failed, found.counts.unclean) == (8, 11, 5, 2)
    assert found.per_attempt.estimate == pytest.approx(6 / 11)
    assert found.per_boundary.low < found.per_boundary.estimate == 0.75 < found.per_boundary.high
    assert found.predicted == pytest.approx(0.75**2)
    assert found.predicted_by_attempts == pytest.approx((6 / 11) ** 2)
    assert (found.observed, found.masked) == (0.5, 1)
    assert not isinstance(found.residual, str)
    assert found.residual.estimate == 0.5


def test_without_failed_runs_there_is_no_residual() -> None:
    assert table([RunCrossings(True, [(True,)])] * 3).residual == "no run failed"


def test_runs_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="none after a clean one"):
        table([RunCrossings(True, [(True, False)]), RunCrossings(True, [(True,)])])
    with pytest.raises(ValueError, match="each crossing an attempt"):
        table([RunCrossings(True, [()]), RunCrossings(True, [(True,)])])
