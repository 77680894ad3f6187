"""Chains of delegations in the report: what is promised, and where independence promises too much."""

import pytest

from harness.core.records import NotApplicable
from harness.report.dependence import ASSUMES, Chain, dependence, section
from harness.report.rows import Row


def row(index: int, clean: dict[str, bool], arm: str = "naive", faults: int = 1, status: str = "ended") -> Row:
    return Row(
        trial=f"t{index}{arm}",
        pair=f"p{index}",
        index=index,
        arm=arm,
        fault_class="x" if faults else "none",
        variant="",
        faults_scheduled=faults,
        status=status,  # type: ignore[arg-type]
        clean=clean,
    )


def trial(failed: str = "", names: str = "abcd") -> dict[str, bool]:
    return {name: name not in failed for name in names}


def chain(rows: list[Row], arm: str = "naive") -> Chain:
    found = dependence(rows)[arm]
    assert isinstance(found, Chain)
    return found


def test_one_fault_per_trial_makes_the_product_promise_too_much() -> None:
    rows = [row(i, trial("abcd"[i % 4] if i % 10 < 8 else "")) for i in range(400)]
    it = chain(rows)
    assert it.trials == 400
    assert it.links == {name: pytest.approx(0.8) for name in "abcd"}
    assert (it.product, it.product_label, it.observed) == (pytest.approx(0.4096), ASSUMES, 0.2)
    assert it.certificate <= it.direct < 0.2 < it.ci_high < it.product
    assert "promises 0.410 by assuming independence, above the upper bound 0.243" in it.because


def test_a_common_cause_makes_it_promise_too_little_and_nothing_is_said() -> None:
    it = chain([row(i, trial("abcd" if i % 5 == 0 else "")) for i in range(200)])
    assert (it.observed, it.product, it.because) == (0.8, pytest.approx(0.4096), "")
    assert it.certificate == pytest.approx(0.233, abs=1e-3)  # by pairs that fail together; links alone promise nothing
    assert it.direct == pytest.approx(0.7478, abs=1e-3)


def test_trials_without_faults_and_invalid_ones_do_not_count() -> None:
    good = [row(i, trial()) for i in range(10)]
    others = [row(20, trial("a"), faults=0), row(21, trial("a"), status="invalid"), row(22, {})]
    it = chain([*others, *good])
    assert (it.trials, it.observed, it.direct) == (10, 1.0, pytest.approx(0.05**0.1, abs=1e-5))


def test_arms_are_told_apart_and_the_order_of_rows_does_not_matter() -> None:
    rows = [row(i, trial("a" if i % 3 else "", "ab"), arm) for i in range(30) for arm in ("mesh", "naive")]
    assert list(dependence(rows)) == ["mesh", "naive"]
    assert dependence(rows) == dependence(rows[::-1])


@pytest.mark.parametrize(
    ("rows", "because"),
    [
        ([row(0, {"a": True})], "one link"),
        ([row(0, trial(), faults=0)], "no valid trial"),
        ([row(0, trial()), row(1, trial(names="abc"))], "different links"),
    ],
)
def test_where_there_is_no_chain_it_says_why(rows: list[Row], because: str) -> None:
    found = dependence(rows)["naive"]
    assert isinstance(found, NotApplicable)
    assert because in found.because
    assert because in section(rows)["naive"]["not_applicable"]


def test_the_section_is_plain_data() -> None:
    told = section([row(i, trial("a" if i == 0 else "")) for i in range(20)])["naive"]
    assert told["links"] == {"a": 0.95, "b": 1.0, "c": 1.0, "d": 1.0}
    assert told["product_label"] == ASSUMES
