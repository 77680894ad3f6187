"""The work planner: what is coupled, how it is packed into slices, and what cannot be sliced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arms.mesh.control import planner
from arms.mesh.control.compiler import compile
from arms.mesh.control.planner import POLICY, Unit, clusters, coupled, slices
from harness.incidents.kinds.plan import coupled_anywhere
from tests.unit.declarations import changed


def unit(component: str, scenario: str, *artefacts: str) -> Unit:
    return Unit(component=component, scenario=scenario, artefacts=artefacts, tokens=1)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (unit("a", "s", "a/x"), unit("a", "t", "a/x"), True),
        (unit("a", "s", "a/x"), unit("a", "t", "a/y"), False),
        (unit("a", "s", "a/x"), unit("b", "s", "b/x"), False),
        (unit("a", "s", "common"), unit("b", "t", "common"), False),
    ],
)
def test_work_is_coupled_inside_one_component_only(one: Unit, other: Unit, together: bool) -> None:
    assert coupled(one, other) is coupled(other, one) is together


def test_a_shared_scenario_is_work_of_both_and_welds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.components for one in slices(changed())] == [("mail",), ("seats",)]
    monkeypatch.setattr(planner, "coupled", coupled_anywhere)
    assert ("mail", "seats") in [one.components for one in slices(changed())]
    assert {d.id for d in compile(changed()).delegations} == {"mail+seats", "seats"}


def test_coupling_is_transitive() -> None:
    chain = [unit("a", "r", "x"), unit("a", "s", "x", "y"), unit("a", "t", "y"), unit("a", "u", "z")]
    assert [len(group) for group in clusters(chain, coupled)] == [3, 1]


def work(count: int, tokens: int, shared: bool = False) -> dict[str, Any]:
    return {
        f"s{i}": {
            "asserts": {
                "seats": {"what": ["x"], "artefacts": ["seats/all.py" if shared else f"seats/{i}.py"], "tokens": tokens}
            }
        }
        for i in range(count)
    }


def seats(count: int, tokens: int, shared: bool = False, **more: Any) -> Any:
    """`seats` with so many scenarios, each of so many tokens; its fixed part is three phases."""
    checks = {"seats": {"component": "seats", "kind": "pytest", "target": "seats/test_it.py", "made_in": "test_design"}}
    checks["seats"]["scenarios"] = [f"s{i}" for i in range(count)]  # type: ignore[assignment]
    return changed(behaviour__scenarios=work(count, tokens, shared), delivery__checks=checks, **more)


def test_slices_fit_what_may_be_planned_of_the_budget() -> None:
    fixed = 3 * POLICY.tokens.phase
    found = [one for one in slices(seats(4, 7000)) if one.components == ("seats",)]
    assert [(one.id, len(one.units), one.tokens) for one in found] == [
        ("seats.1", 2, fixed + 14000),
        ("seats.2", 2, fixed + 14000),
    ]
    assert all(one.limit_tokens == 40000 * POLICY.slice_share for one in found)


def test_slices_of_one_component_follow_each_other_and_check_what_is_done() -> None:
    mail = {"mail": {"what": ["x"], "artefacts": ["mail/x.py"]}}
    scenarios = {**work(4, 7000), "late": {"asserts": mail}}
    check = {"component": "seats", "kind": "pytest", "target": "seats/test_it.py", "made_in": "test_design"}
    checks = {
        "early": {**check, "scenarios": ["s0", "s1"]},
        "always": check,
        "both": {**check, "scenarios": ["s0", "s3"]},
        "of_others": {**check, "scenarios": ["late"]},
    }
    compiled = compile(changed(behaviour__scenarios=scenarios, delivery__checks=checks))
    one, two, other = compiled.delegations
    assert (one.id, two.id, other.needs) == ("seats.1", "seats.2", ("seats.1", "seats.2"))
    assert two.needs == ("seats.1",)
    assert one.contract.checks == ("always", "early")
    assert two.contract.checks == ("always", "both", "early", "of_others")


def test_a_cluster_is_never_split_and_the_direct_mode_splits_nothing() -> None:
    assert [len(one.units) for one in slices(seats(4, 7000, shared=True)) if one.units] == [4]
    assert [len(one.units) for one in slices(seats(4, 7000, delivery__mode="direct")) if one.units] == [4]


def test_a_component_without_work_is_one_slice() -> None:
    assert [one.id for one in slices(seats(1, 10)) if not one.units] == ["mail"]


def test_the_estimate_counts_files_and_statements_unless_the_author_says() -> None:
    book, free = (unit for unit in planner.units(changed()) if unit.component == "seats")
    assert book.tokens == free.tokens == POLICY.tokens.artefact + POLICY.tokens.assertion
    assert planner.units(seats(1, 77))[0].tokens == 77


UNITS = st.lists(
    st.builds(unit, st.sampled_from("ab"), st.sampled_from("stuv"), st.sampled_from("wxyz"), st.sampled_from("wxyz")),
    unique=True,
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(UNITS)
def test_clusters_partition_the_work_and_keep_coupled_units_together(found: list[Unit]) -> None:
    groups = clusters(found, coupled)
    assert sorted(map(repr, found)) == sorted(repr(one) for group in groups for one in group)
    of = {one: i for i, group in enumerate(groups) for one in group}
    assert all(of[a] == of[b] for a in found for b in found if coupled(a, b))
    assert all(len({one.component for one in group}) == 1 for group in groups)
