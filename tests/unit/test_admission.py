"""Admission: every gate has a declaration that it alone refuses, the dry run finds what only running would, and the
incidents of the declaration authority come back when its guards are reverted."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from arms.mesh.control import admission, declaration
from arms.mesh.control.admission import admit, meet
from harness.cli import app
from harness.core.errors import ConfigError
from harness.core.types import Delegation
from harness.incidents.files import Expected
from harness.incidents.guards_control import GUARDS
from harness.incidents.kinds import plan as kind
from harness.incidents.proof import reverted
from harness.orchestrator import plan
from tests.unit.declarations import TOOLCHAIN, changed

ROOT = Path(__file__).parents[2]
DECLARATIONS = ROOT / "schedules" / "declarations"
CHECK = {"component": "seats", "kind": "pytest", "target": "seats/test_it.py", "scenarios": ["free"]}
ASYNC = ["pytest-asyncio==0.24.0"]


def refusals(read: admission.Read = lambda path: None, **changes: Any) -> list[str]:
    return list(map(str, admit(changed(**changes), read=read, validate=plan.validate).refusals))


def test_what_can_be_built_is_admitted_with_its_plan() -> None:
    found = admit(changed(), validate=plan.validate)
    assert (found.admitted, found.refusals) == (True, ())
    assert found.compiled is not None
    assert [d.id for d in found.compiled.delegations] == ["seats", "mail"]


@pytest.mark.parametrize(
    ("gate", "changes", "told"),
    [
        ("cyclic", {"structure__components__seats__needs": ["mail"]}, "mail, seats wait for each other"),
        ("overlapping", {"structure__components__mail__paths": ["*/free.py", "mail/**"]}, "mail and seats may both"),
        (
            "unwritable",
            {"behaviour__scenarios__free__asserts__seats__artefacts": ["other/x.py"]},
            "seats has to make 'other/x.py' and may not write it; allowed: seats/**",
        ),
        ("unwritable", {"delivery__checks__seats__target": "tests/test_it.py"}, "seats has to make 'tests/test_it.py'"),
        ("unproven", {"delivery__checks__seats__scenarios": []}, "no executable check proves scenario 'free'"),
        (
            "keyless",
            {"behaviour__effects__mail": [{"boundary": "database", "operation": "execute", "target": "mail"}]},
            "has no key; to satisfy it: state in key",
        ),
        ("unstated", {"delivery__toolchain": {}}, "pytest takes discovery for granted"),
        ("unstated", {"delivery__packages__mail": ASYNC}, "state delivery.toolchain.pytest.asyncio_mode"),
        ("unstated", {"delivery__phases__mail": ["test_design", "test_preflight"]}, "fixture_setup for granted"),
        ("misstated", {"delivery__toolchain__pytest__asyncio_mod": "auto"}, "did you mean 'asyncio_mode'?"),
        ("misstated", {"delivery__toolchain__pytest__import_mode": "appendix"}, "did you mean 'append'?"),
        ("misstated", {"delivery__toolchain__pytest__timeout_ms": 0}, "allowed: milliseconds above 0"),
        ("misstated", {"delivery__toolchain__make": {"jobs": 2}}, "make has no setting 'jobs'"),
        (
            "oversized",
            {"behaviour__scenarios__free__asserts__seats__tokens": 20000},
            "one unit of about 24500 tokens (free); allowed: at most 20000 planned tokens; to satisfy it: a budget of"
            " at least 49000 tokens",
        ),
        ("oversized", {"delivery__budget__tokens": 18000, "delivery__mode": "direct"}, "or mode tdd, which slices it"),
        ("unpinned", {"delivery__packages__mail": ["meshmoney>=1"]}, "is no pin; allowed: name==version"),
        ("unpinned", {"structure__components__mail__packages": ["meshmoney"]}, "pin it in delivery.packages.mail"),
        (
            "unpinned",
            {
                "behaviour__effects__mail": [
                    {"boundary": "registry", "operation": "fetch", "target": "MeshUnits", "key": ["package"]}
                ]
            },
            "mail uses the package 'MeshUnits'",
        ),
        ("absent", {"delivery__checks__seats": CHECK}, "is not in the repository, and no phase makes it"),
        (
            "absent",
            {
                "delivery__mode": "direct",
                "delivery__phases__seats": ["test_design", "red_validation"],
                "delivery__checks__seats": {**CHECK, "made_in": "red_validation"},
            },
            "made in red_validation, which the direct mode leaves out",
        ),
        (
            "walk",
            {"delivery__checks__mail__also_run_by": ["seats"]},
            "seats runs 'mail', which mail may not have made by then; to satisfy it: let it need mail",
        ),
        (
            "walk",
            {
                "delivery__mode": "direct",
                "delivery__phases__mail": ["red_validation"],
                "delivery__checks": {"both": {**CHECK, "made_in": "test_design", "scenarios": ["free", "book"]}},
            },
            "mail goes through no phase",
        ),
        ("walk", {"delivery__checks__seats__also_run_by": ["mail"], "delivery__budget__check_runs": 1}, "at least 2"),
    ],
)
def test_a_gate_refuses_says_where_and_what_would_satisfy_it(
    gate: str, changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = refusals(**changes)
    assert any(told in one for one in found), found
    assert all(one.startswith("t.yaml:1: ") and "to satisfy it: " in one for one in found)
    monkeypatch.setattr(admission, gate, lambda *given: iter(()))
    if gate == "cyclic":
        monkeypatch.setattr(admission, "walk", lambda *given: iter(()))
    assert not any(told in one for one in refusals(**changes))


def test_hooks_cannot_be_asked_so_they_need_no_key() -> None:
    assert refusals(behaviour__effects__mail=[{"boundary": "hook", "operation": "run", "target": "x"}]) == []


def test_a_file_that_is_there_satisfies_the_check_and_a_lock_file_is_read() -> None:
    files = {"seats/test_it.py": "", "seats/requirements.lock": "meshmoney==1.2.0  # money\n\n"}
    lock = {"component": "seats", "kind": "install", "target": "seats/requirements.lock"}
    stated = {"workdir": ".", "resolution": "pinned", "timeout_ms": 1000}
    changes = {"delivery__checks__seats": CHECK, "delivery__checks__lock": lock, "delivery__toolchain__install": stated}
    (found,) = refusals(files.get, **changes)
    assert "uses the package 'meshmoney==1.2.0'" in found
    assert refusals(files.get, **changes, delivery__packages__seats=["meshmoney==1.2.0"]) == []


def test_a_sub_agent_may_write_inside_its_parents_set() -> None:
    verifier = {"tenant": "acme", "language": "python", "paths": ["seats/report.md"]}
    phases = {"delivery__phases__verifier": ["local_verification"]}
    assert refusals(structure__components__verifier={**verifier, "parent": "seats"}, **phases) == []
    assert "may both write" in refusals(structure__components__verifier=verifier, **phases)[0]


def test_a_program_that_is_not_there_is_told() -> None:
    found = admit(changed(), resolves=lambda program: program != "pytest").refusals
    assert {one.satisfy for one in found} == {"install pytest"}


def test_the_orchestrators_own_refusal_of_the_plan_is_told() -> None:
    def no(found: Sequence[Delegation]) -> None:
        raise ConfigError("too deep", allowed="1 to 3")

    (found,) = admit(changed(), validate=no).refusals
    assert (found.what, found.allowed) == ("too deep", "1 to 3")


def test_parents_above_each_other_end_in_a_refusal() -> None:
    one = {"tenant": "acme", "language": "python"}
    changes = {"structure__components__x": {**one, "parent": "y"}, "structure__components__y": {**one, "parent": "x"}}
    phases = {"delivery__phases__x": ["acceptance"], "delivery__phases__y": ["acceptance"]}
    assert "x, y wait for each other" in refusals(**changes, **phases)[0]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [("a/*", "b/*", False), ("a/*", "*/x", True), ("a/?.py", "a/b.py", True), ("a/b", "a/bc", False), ("*", "", True)],
)
def test_globs_meet(one: str, other: str, both: bool) -> None:
    assert meet(one, other) is meet(other, one) is both


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?", max_size=5), st.text("ab*?", max_size=5), st.text("ab", max_size=6))
def test_globs_that_match_one_path_meet(one: str, other: str, path: str) -> None:
    if fnmatchcase(path, one) and fnmatchcase(path, other):
        assert meet(one, other)


# --- the command ------------------------------------------------------------------------------------------------------


def test_admit_prints_the_plan_and_its_digest() -> None:
    done = CliRunner().invoke(app, ["admit", str(DECLARATIONS / "shop.yaml")])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("admitted, sha256 ")
    assert "acceptance\tneeds orders, inventory, storefront, orders_verifier; phases acceptance" in done.stdout


@pytest.mark.parametrize("path", sorted(DECLARATIONS.glob("refused_*.yaml")), ids=lambda path: path.stem)
def test_admit_refuses_with_exit_code_2_and_the_place(path: Path) -> None:
    done = CliRunner().invoke(app, ["admit", str(path)])
    assert done.exit_code == 2
    assert all(line.startswith(f"agentmesh: {path}:") for line in done.stderr.splitlines())
    assert done.stdout == ""


# --- the incidents ----------------------------------------------------------------------------------------------------

INCIDENTS = {id: yaml.safe_load((ROOT / "schedules" / "incidents" / f"{id}.yaml").read_text()) for id in
             ("I13", "I14", "I18")}  # fmt: skip


@pytest.mark.parametrize("id", INCIDENTS)
@pytest.mark.parametrize("side", ["naive", "mesh"])
def test_an_incident_goes_as_expected(id: str, side: Any) -> None:
    incident = INCIDENTS[id]
    assert Expected(**incident["expect"][side]).misses(kind.play(incident["story"], side, "sim")) == ""


def test_three_rows_are_real_and_both_components_escalate() -> None:
    assert kind.play(INCIDENTS["I13"]["story"], "mesh", "sim").facts["required"] == 3
    assert kind.play(INCIDENTS["I14"]["story"], "naive", "sim").facts["by_component"] == {"importer": 8, "listener": 6}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_reverted_guard_brings_its_own_incident_back_and_no_other(guard: Any) -> None:
    with reverted(guard):
        failed = {id for id, one in INCIDENTS.items() if kind.play(one["story"], "mesh", "sim").failed}
    assert failed == set(guard.incidents) == {id for id, one in INCIDENTS.items() if guard.name in one["guards"]}


def test_what_is_stated_after_a_refusal_has_to_satisfy_it() -> None:
    story = {**INCIDENTS["I14"]["story"], "stated": {"pytest": {"asyncio_mode": "auto"}}}
    assert kind.play(story, "mesh", "sim").failed
    with pytest.raises(ConfigError, match="story"):
        kind.play({"asks": "nothing", "declaration": {}}, "mesh", "sim")


def test_settings_that_are_stated_escalate_nothing() -> None:
    whole = INCIDENTS["I14"]["story"]["declaration"]
    delivery = {**whole["delivery"], "toolchain": {"pytest": {**TOOLCHAIN, "asyncio_mode": "auto"}}}
    assert kind.escalations(declaration.declared({**whole, "delivery": delivery}, "t"), "listener") == 0


@pytest.mark.parametrize(
    ("one", "other", "met"), [("a*" * 240, "*b" * 240, True), ("a" * 499 + "*", "a" * 499 + "b", True),
                              ("a" * 5000, "a" * 4999 + "b", False), ("*a" * 240 + "b", "*a" * 240 + "c", False)]
)  # fmt: skip
def test_long_patterns_are_compared_without_an_end_of_the_stack(one: str, other: str, met: bool) -> None:
    assert meet(one, other) is met


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"structure__components__seats__paths": ["a" * 501]}, "at most 500 characters"),
        ({"delivery__budget__tokens": 10**20}, "allowed: a whole number from 1 to 1000000000"),
        ({"delivery__polls": {"seats": [{"tool": "list", "interval_ms": -5.0}]}}, "interval_ms from 0"),
        ({"delivery__polls": {"seats": [{"tool": "list", "deadline_ms": 0.0}]}}, "deadline_ms above 0"),
    ],
)
def test_numbers_that_mean_nothing_are_refused_on_reading(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        changed(**changes)


def test_half_a_character_is_refused_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    text = (DECLARATIONS / "shop.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("system: shop", 'system: "\\ud800"', 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"structure\.system holds half a character"):
        declaration.load(path)


def test_a_repository_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", DECLARATIONS / "shop.yaml"):
        done = CliRunner().invoke(app, ["admit", str(DECLARATIONS / "shop.yaml"), "--repository", str(path)])
        assert done.exit_code == 2
        assert "the repository is no folder" in done.stderr
