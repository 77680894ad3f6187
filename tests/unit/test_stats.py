"""Statistics: the guarantees by simulation at fixed seeds, exact values where nothing is random, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.betting import BOLD, EVEN, FRACTIONS, e_value, log_e_mix, log_mean, peak
from harness.stats.claims import Contrast, non_inferiority, superiority
from harness.stats.intervals import difference_e_value, difference_interval, rate_interval, rate_lower, rate_upper
from harness.stats.kill import FaultRate, KillPlan, Primary, conditional_threshold, decide, realistic_scores

REPLICATIONS = 400
PLAIN = KillPlan((FaultRate("any", 1.0, 1.0, 1.0),), pairs_min=60, pairs_max=800)
"""One class at a rate of one: conditional harm is unconditional harm."""


def bursts(rng: np.random.Generator, rate: float, n: int, share: float = 0.1, effects: int = 12) -> np.ndarray:
    """Incidence per trial: `share` of the trials are hit, and what is hit is correlated (beta-binomial, ICC 0.4)."""
    if rate == 0:
        return np.zeros(n)
    share = max(share, 1.25 * rate)
    inside = rng.beta(rate / share * 1.5, (1 - rate / share) * 1.5, size=n)
    return rng.binomial(effects, np.where(rng.random(n) < share, inside, 0.0)) / effects


def losses(rng: np.random.Generator, mean: float, n: int) -> np.ndarray:
    """Work destroyed, as a share: most trials lose nothing, some a lot."""
    if mean == 0:
        return np.zeros(n)
    share = min(0.9, 2.5 * mean)
    return np.where(rng.random(n) < share, rng.beta(mean / share * 2.3, (1 - mean / share) * 2.3, n), 0.0)


def outcome(duplicates: np.ndarray, work: np.ndarray, plan: KillPlan = PLAIN, drawn: list[str] | None = None) -> str:
    primaries = [Primary("P1", duplicates, duplicates, 0.01), Primary("P2", work, work, 0.05)]
    return decide(primaries, drawn or ["any"] * len(duplicates), plan).outcome


# --- the e-process ------------------------------------------------------------------------------------------------


def test_capital_after_one_and_two_pairs_by_hand() -> None:
    path = log_e_mix([0.5, -0.25], 0.5)
    one = 1 + FRACTIONS / 0.5 * 0.5
    two = one * (1 - FRACTIONS / 0.5 * 0.25)
    assert np.exp(path) == pytest.approx([one.mean(), two.mean()])


def test_weights_are_shares() -> None:
    assert EVEN.sum() == pytest.approx(1)
    assert BOLD.sum() == pytest.approx(1)


def test_a_score_below_its_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="below its bound"):
        log_e_mix([-0.6], 0.5)
    with pytest.raises(ValueError, match="must be positive"):
        log_e_mix([0.0], 0.0)


def test_evidence_is_a_finite_number_and_starts_at_one() -> None:
    assert e_value(peak(np.empty(0))) == 1.0
    assert np.isfinite(e_value(np.inf))
    assert e_value(peak(log_e_mix(-np.ones(5), 1.0))) == 1.0


def test_no_growth_is_to_be_expected_when_the_claim_is_false() -> None:
    """Ville: among fair games the capital reaches 20 at any look in at most 5 % of the cases."""
    rng = np.random.default_rng(1)
    hits = [peak(log_e_mix(rng.choice([-0.1, 0.9], 400, p=[0.9, 0.1]), 0.1)) >= np.log(20) for _ in range(REPLICATIONS)]
    assert np.mean(hits) <= 0.05


# --- intervals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 50])
@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_bounds_cover_in_bursts_where_asymptotic_intervals_do_not(n: int, rate: float) -> None:
    rng = np.random.default_rng(100 * n)
    covered, naive = 0, 0
    for _ in range(REPLICATIONS):
        harm = bursts(rng, rate, n) * 12
        found = rate_interval(harm, np.full(n, 12), 12)
        covered += found.low <= rate <= found.high
        naive += abs(harm.mean() / 12 - rate) <= 1.96 * (harm / 12).std(ddof=1) / np.sqrt(n)
    assert covered / REPLICATIONS >= 0.95
    assert naive / REPLICATIONS < 0.9


def test_bounds_of_a_difference_cover() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(REPLICATIONS):
        excess = bursts(rng, 0.05, 50) - bursts(rng, 0.01, 50)
        found = difference_interval(excess, np.ones(50), 1.0)
        covered += found.low <= 0.04 <= found.high
    assert covered / REPLICATIONS >= 0.95


def test_without_events_the_upper_bound_is_what_the_number_of_trials_allows() -> None:
    found = rate_interval(np.zeros(366), np.full(366, 12), 12, alpha=0.1)
    assert (found.estimate, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.01, abs=5e-5)


def test_full_harm_everywhere() -> None:
    found = rate_interval(np.full(30, 12), np.full(30, 12), 12)
    assert found.estimate == found.high == 1.0
    assert 0.8 < found.low < 1.0


def test_one_trial_says_little() -> None:
    found = rate_interval([12], [12], 12)
    assert found.low < 0.03
    assert found.high == 1.0


def test_scaling_changes_the_unit_only() -> None:
    found = rate_interval([0.1, 0.3], [1, 1], 1.0)
    scaled = found.scaled(30_000)
    assert (scaled.estimate, scaled.low) == (found.estimate * 30_000, found.low * 30_000)


def test_varying_denominators_are_allowed_up_to_their_maximum() -> None:
    found = rate_interval([1, 0, 2], [6, 12, 20], 20)
    assert found.estimate == pytest.approx(3 / 38)
    with pytest.raises(ValueError, match="denominators"):
        rate_interval([1], [21], 20)
    with pytest.raises(ValueError, match="harm must lie"):
        rate_interval([7], [6], 20)
    with pytest.raises(ValueError, match="non-empty"):
        rate_interval([], [], 20)


@given(st.lists(st.integers(0, 11), min_size=1, max_size=40), st.integers(0, 40))
def test_bounds_bracket_the_estimate_and_shrink_with_confidence(harm: list[int], extra: int) -> None:
    base = np.full(len(harm), 11)
    found = rate_interval(harm, base, 11)
    assert found.low <= found.estimate <= found.high
    assert rate_lower(harm, base, 11, 0.025) <= rate_lower(harm, base, 11, 0.2)
    assert rate_upper(harm, base, 11, 0.025) >= rate_upper(harm, base, 11, 0.2)
    more = [*harm, *[11] * extra]
    assert rate_lower(more, np.full(len(more), 11), 11, 0.025) >= found.low - 1e-9


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=40))
def test_swapping_the_arms_mirrors_the_difference(pairs: list[tuple[int, int]]) -> None:
    excess = np.array([a - b for a, b in pairs], dtype=float)
    base = np.full(len(pairs), 11)
    here, there = difference_interval(excess, base, 11), difference_interval(-excess, base, 11)
    assert (here.low, here.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
    assert here.low <= here.estimate <= here.high


def test_evidence_for_a_difference_needs_a_difference() -> None:
    ones = np.ones(60)
    assert difference_e_value(np.zeros(60), ones, 1.0) == pytest.approx(1.0)
    assert difference_e_value(np.full(60, 0.2), ones, 1.0) > 20
    assert difference_e_value(np.full(60, -0.2), ones, 1.0) < 1


# --- the kill criterion -------------------------------------------------------------------------------------------


def test_nothing_at_all_stops_at_pair_366() -> None:
    zeros = np.zeros(800)
    primaries = [Primary("P1", zeros, zeros, 0.01), Primary("P2", zeros, zeros, 0.05)]
    found = decide(primaries, ["any"] * 800, PLAIN)
    assert (found.outcome, found.decided_at) == ("STOP", 366)
    assert decide([Primary("P2", zeros, zeros, 0.05)], ["any"] * 800, PLAIN).decided_at == 72


def test_full_harm_goes_at_the_first_look() -> None:
    ones = np.ones(100)
    found = decide([Primary("P1", ones, ones, 0.01), Primary("P2", ones, ones, 0.05)], ["any"] * 100, PLAIN)
    assert (found.outcome, found.decided_at, found.material) == ("GO", 60, ("P1", "P2"))


def test_going_on_at_the_threshold_is_rare_at_any_look() -> None:
    rng = np.random.default_rng(3)
    found = [outcome(bursts(rng, 0.01, 800), losses(rng, 0.05, 800)) for _ in range(REPLICATIONS)]
    assert np.mean([o == "GO" for o in found]) <= 0.04
    assert np.mean([o == "STOP" for o in found]) <= 0.05


@pytest.mark.parametrize(("duplicates", "work"), [(0.01, 0.0), (0.0, 0.05)])
def test_stopping_with_one_material_primary_is_rare(duplicates: float, work: float) -> None:
    rng = np.random.default_rng(4)
    found = [outcome(bursts(rng, duplicates, 800), losses(rng, work, 800)) for _ in range(REPLICATIONS)]
    assert np.mean([o == "STOP" for o in found]) <= 0.05


@pytest.mark.parametrize(
    ("duplicates", "work", "expected", "least"),
    [(0.05, 0.01, "GO", 0.98), (0.001, 0.15, "GO", 0.98), (0.001, 0.01, "STOP", 0.9)],
)
def test_clear_cases_are_decided(duplicates: float, work: float, expected: str, least: float) -> None:
    rng = np.random.default_rng(5)
    found = [outcome(bursts(rng, duplicates, 800), losses(rng, work, 800)) for _ in range(100)]
    assert np.mean([o == expected for o in found]) >= least


MIXED = KillPlan((FaultRate("rare", 0.5, 0.001, 0.002), FaultRate("common", 0.5, 0.2, 0.4)), 60, 800)


def test_forced_harm_of_a_rare_fault_is_not_material() -> None:
    """Thirty per cent of the effects doubled in every trial of a class that operation hardly ever meets."""
    rng = np.random.default_rng(6)
    drawn = [str(name) for name in rng.choice(["rare", "common"], 600)]
    harm = np.array([0.3 if name == "rare" else 0.0 for name in drawn])
    assert harm.mean() > 0.1
    assert outcome(harm, np.zeros(600), MIXED, drawn) == "STOP"


def test_weighting_keeps_the_error_rate_at_the_threshold() -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(REPLICATIONS):
        drawn = [str(name) for name in rng.choice(["rare", "common"], 400)]
        common = bursts(rng, 0.05, 400)  # 0.2 x 5 % = 1 %, exactly the threshold
        harm = np.where(np.array(drawn) == "common", common, 0.0)
        found.append(outcome(harm, np.zeros(400), MIXED, drawn))
    assert np.mean([o == "GO" for o in found]) <= 0.04
    assert np.mean([o == "STOP" for o in found]) <= 0.05


def test_the_mean_of_realistic_scores_is_the_harm_in_operation() -> None:
    scores, ceiling = realistic_scores(np.array([0.3, 0.1]), ["rare", "common"], MIXED)
    assert scores.mean() == pytest.approx(0.001 * 0.3 + 0.2 * 0.1)
    assert ceiling == pytest.approx(0.4)
    assert conditional_threshold(0.01, MIXED) == pytest.approx(0.01 / 0.201)
    assert conditional_threshold(0.9, MIXED) == 1.0


def test_rates_too_small_for_any_harm_to_matter_stop_at_the_first_look() -> None:
    plan = KillPlan((FaultRate("any", 1.0, 0.005, 0.005),), 60, 800)
    ones = np.ones(80)
    found = decide([Primary("P1", ones, ones, 0.01)], ["any"] * 80, plan)
    assert (found.outcome, found.decided_at) == ("STOP", 60)
    assert any("even full harm" in reason for reason in found.reasons)


def test_a_class_that_is_material_alone_is_named_instead_of_stopping() -> None:
    plan = KillPlan((FaultRate("rare", 0.5, 0.0001, 0.5), FaultRate("common", 0.5, 0.1, 0.1)), 60, 800)
    drawn = ["rare", "common"] * 400
    harm = np.array([0.4 if name == "rare" else 0.0 for name in drawn])
    zeros = np.zeros(800)
    found = decide([Primary("P1", harm, harm, 0.01), Primary("P2", zeros, zeros, 0.05)], drawn, plan)
    assert (found.outcome, found.narrow) == ("GO_NARROW", ("rare",))


def test_invalid_trials_count_against_both_answers() -> None:
    low, high = np.zeros(400), np.zeros(400)
    high[::50] = 1.0
    assert decide([Primary("P1", low, high, 0.01)], ["any"] * 400, PLAIN).outcome == "INCONCLUSIVE"
    assert decide([Primary("P1", low, low, 0.01)], ["any"] * 400, PLAIN).outcome == "STOP"


def test_only_the_registered_prefix_is_looked_at() -> None:
    harm = np.r_[np.zeros(800), np.ones(200)]
    found = decide([Primary("P1", harm, harm, 0.01)], ["any"] * 1000, PLAIN)
    assert (found.outcome, found.decided_at) == ("STOP", 366)


def test_failed_gates_come_first() -> None:
    ones = np.ones(100)
    found = decide([Primary("P1", ones, ones, 0.01)], ["any"] * 100, PLAIN, ["the oracle is broken"])
    assert found.outcome == "INVALID"
    assert found.reasons[0] == "the oracle is broken"


def test_few_pairs_and_unknown_classes() -> None:
    ones = np.ones(59)
    assert decide([Primary("P1", ones, ones, 0.01)], ["any"] * 59, PLAIN).outcome == "INCONCLUSIVE"
    assert decide([Primary("P1", np.empty(0), np.empty(0), 0.01)], [], PLAIN).decided_at == 0
    with pytest.raises(ValueError, match="without a registered rate: other"):
        decide([Primary("P1", ones, ones, 0.01)], ["other"] * 59, PLAIN)


# --- claims about the treatment -----------------------------------------------------------------------------------


def test_superiority_on_one_primary_does_not_spill_over() -> None:
    rng = np.random.default_rng(9)
    control, equal = bursts(rng, 0.2, 300, share=0.5), losses(rng, 0.1, 300)
    better, same = superiority([Contrast("P1", control, control * 0.05), Contrast("P2", equal, equal)], 0.5, 0.05)
    assert better.shown
    assert not same.shown
    assert "is below 0.5 x control" in better.reason


def test_equal_arms_are_rarely_called_better() -> None:
    rng = np.random.default_rng(10)
    wrong = 0
    for _ in range(REPLICATIONS):
        first = Contrast("P1", bursts(rng, 0.05, 200), bursts(rng, 0.05, 200))
        second = Contrast("P2", losses(rng, 0.1, 200), losses(rng, 0.1, 200))
        wrong += any(claim.shown for claim in superiority([first, second], 1.0, 0.05))
    assert wrong / REPLICATIONS <= 0.05


def test_superiority_of_no_pairs_is_not_shown() -> None:
    assert not superiority([Contrast("P1", np.empty(0), np.empty(0))], 0.5, 0.05)[0].shown


def test_non_inferiority_needs_data_even_without_losses() -> None:
    assert not non_inferiority("lost", np.zeros(100), 0.01, 0.05).shown
    assert non_inferiority("lost", np.zeros(400), 0.01, 0.05).shown


def test_harm_beyond_the_margin_is_called_harm() -> None:
    claim = non_inferiority("success", np.full(80, 0.3), 0.05, 0.05)
    assert not claim.shown
    assert claim.contrary_shown
    assert "worse by more than" in claim.reason


def test_harm_at_the_margin_is_rarely_called_none() -> None:
    rng = np.random.default_rng(11)
    shown = [
        non_inferiority("success", rng.choice([1.0, 0.0, -1.0], 300, p=[0.1, 0.85, 0.05]), 0.05, 0.05).shown
        for _ in range(REPLICATIONS)
    ]
    assert np.mean(shown) <= 0.05


def test_the_average_of_e_processes_is_one() -> None:
    a, b = log_e_mix([0.2, -0.1], 0.5), log_e_mix([-0.3, 0.4], 0.5)
    assert np.exp(log_mean(a, b)) == pytest.approx((np.exp(a) + np.exp(b)) / 2)
