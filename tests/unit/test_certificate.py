"""Bounds for whole chains: sound, sharp for what they are told, and never above each other in the wrong order."""

import itertools

import numpy as np
import pytest

from harness.stats.asymptotic import clopper_pearson
from harness.stats.certificate import (
    aggregated,
    boole,
    certificate,
    direct,
    exact,
    exact_upper,
    generated,
    hunter_worsley,
    reduced,
    reduced_max,
)
from harness.stats.moments import Box, box, box_of_joint, family, mixture

CLOSE = 5e-5  # what is taken off for the solver and for single precision


def one_fault(k: int, rate: float) -> np.ndarray:
    """At most one link fails in a run, each with this probability."""
    joint = np.zeros(2**k)
    joint[1 << np.arange(k)] = rate
    joint[0] = 1 - k * rate
    return joint


def drawn(joint: np.ndarray, k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    return ((rng.choice(len(joint), n, p=joint)[:, None] >> np.arange(k)) & 1).astype(bool)


@pytest.mark.parametrize("seed", range(8))
def test_more_moments_never_lower_the_bound_and_all_of_them_give_the_truth(seed: int) -> None:
    joint = np.random.default_rng(seed).dirichlet(np.full(32, 0.3))
    values = [exact(box_of_joint(joint, 5, family(5, order))) for order in range(1, 6)]
    assert all(a <= b + 2e-6 for a, b in itertools.pairwise(values))
    assert values[-1] == pytest.approx(joint[0], abs=CLOSE)
    assert all(value <= joint[0] for value in values)


def test_independence_promises_too_much_where_one_fault_strikes_per_run() -> None:
    it = box_of_joint(one_fault(10, 0.05), 10, family(10, 2))
    for bound in (exact, aggregated, hunter_worsley, boole):
        assert bound(it) == pytest.approx(0.5, abs=CLOSE)
    assert 0.5 - 5e-4 < generated(it) <= 0.5  # dear prices cost single precision more
    product = np.prod([1 - it.of((i,))[1] for i in range(10)])
    assert product == pytest.approx(0.599, abs=5e-4)
    assert exact_upper(it) == pytest.approx(0.5, abs=CLOSE)


@pytest.mark.parametrize("seed", range(8))
def test_the_bounds_stand_in_their_order_on_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 8))
    it = box(rng.random((400, k)) < rng.uniform(0.01, 0.12, k), family(k, 2), 0.05)
    sharp = exact(it)
    assert boole(it) <= hunter_worsley(it) + 1e-9
    assert boole(it) <= aggregated(it) + CLOSE
    assert hunter_worsley(it) <= sharp + CLOSE
    assert aggregated(it) <= sharp + CLOSE
    assert generated(it) == pytest.approx(sharp, abs=2 * CLOSE)
    assert certificate(it) >= sharp


def test_a_narrower_box_never_lowers_the_bound() -> None:
    wide = box(drawn(one_fault(4, 0.05), 4, 300, np.random.default_rng(3)), family(4, 2), 0.05)
    middle = (wide.low + wide.high) / 2
    narrow = Box(4, wide.family, wide.low * 0.5 + middle * 0.5, wide.high * 0.5 + middle * 0.5)
    assert exact(wide) <= exact(narrow) <= exact_upper(narrow) <= exact_upper(wide)


def test_a_box_that_no_joint_fits_into_is_refused() -> None:
    impossible = Box(2, ((0,), (0, 1)), np.array([0.1, 0.3]), np.array([0.1, 0.3]))
    with pytest.raises(ValueError, match="no joint"):
        exact(impossible)


@pytest.mark.parametrize(("n", "bounds"), [(60, clopper_pearson), (400, clopper_pearson), (400, mixture)])
def test_the_certificate_is_sound_and_a_bootstrap_of_the_product_is_not(n: int, bounds) -> None:
    """One fault per run, six links at 5 %: the truth is 0.7, and the product tends to 0.735."""
    rng, runs = np.random.default_rng(11), 40
    above = product_above = 0
    for _ in range(runs):
        failures = drawn(one_fault(6, 0.05), 6, n, rng)
        above += certificate(box(failures, family(6, 2), 0.05, bounds)) > 0.7
        means = failures[rng.integers(0, n, (200, n))].mean(axis=1)
        product_above += np.quantile((1 - means).prod(axis=1), 0.05) > 0.7
    assert above == 0
    assert n < 400 or product_above > 0.2 * runs


def test_columns_are_generated_for_chains_of_which_not_all_outcomes_can_be_listed() -> None:
    rng, k = np.random.default_rng(5), 18
    failures = np.zeros((1000, k), bool)
    hit = rng.random(1000) < 0.1
    failures[np.flatnonzero(hit), rng.integers(0, k, int(hit.sum()))] = True
    it = box(failures, family(k, 2), 0.05)
    with pytest.raises(ValueError, match="at most 12"):
        exact(it)
    assert max(hunter_worsley(it), aggregated(it)) - CLOSE <= generated(it) + CLOSE
    assert hunter_worsley(it) <= certificate(it) <= 0.9


def test_the_direct_bound_is_one_sided() -> None:
    assert direct(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert direct(0, 20, 0.05) == 0.0


def test_the_mixture_is_wider_than_the_interval_at_a_fixed_n_and_meets_its_definition() -> None:
    low, high = mixture(3, 50, 0.05)
    fixed = clopper_pearson(3, 50, 0.05)
    assert low < fixed[0] < 0.06 < fixed[1] < high
    assert mixture(0, 50, 0.05)[0] == 0.0
    assert mixture(50, 50, 0.05)[1] == 1.0


def test_looking_again_and_again_breaks_the_fixed_interval_and_not_the_mixture() -> None:
    rng, looks = np.random.default_rng(2), range(10, 1200, 20)
    missed = {clopper_pearson: 0, mixture: 0}
    for _ in range(60):
        counts = np.cumsum(rng.random(1200) < 0.1)
        for bounds in missed:
            found = (bounds(int(counts[n - 1]), n, 0.05) for n in looks)
            missed[bounds] += any(not low <= 0.1 <= high for low, high in found)
    assert missed[mixture] <= 3 < missed[clopper_pearson]


def test_one_bounded_mean_covers_the_failure_of_any_link() -> None:
    assert reduced([0, 1, 2, 4, 8], 8).tolist() == [0.0, 1.0, 1.75, 2.5, 1.0]
    assert (reduced(range(1, 27), 26) >= 1).all()
    assert reduced_max(8) == reduced(range(9), 8).max()


def test_counts_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no count"):
        mixture(3, 2, 0.05)
    with pytest.raises(ValueError, match="at least one run"):
        box(np.zeros((0, 3)), family(3, 2), 0.05)
