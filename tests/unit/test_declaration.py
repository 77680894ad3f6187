"""The staged declaration: what is refused on reading, and that compiling it is deterministic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arms.mesh.control import compiler
from arms.mesh.control.compiler import compile
from arms.mesh.control.declaration import declared, load
from harness.core.errors import ConfigError
from harness.core.types import Edge, Node
from harness.incidents.kinds.plan import union_of_dependencies
from tests.unit.declarations import changed, value

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "schedules" / "declarations" / "shop.yaml"
COMPONENT = {"tenant": "acme", "language": "python"}


@pytest.mark.parametrize(
    ("path", "new", "told"),
    [
        ("structure__components__seats__tenant", "acne", "'acne', which is not declared; allowed: acme; did you mean"),
        ("structure__components__mail__needs", ["seat"], "needs[0] names 'seat'"),
        ("structure__components__mail__parent", "seat", "did you mean 'seats'?"),
        ("structure__components__seats__language", "cobol", "allowed: python, javascript"),
        ("structure__components__seats__path", [], "unknown key 'path'"),
        ("structure__components__a/b", COMPONENT, "names 'a/b'|cannot be a name"),
        ("structure__components__seats__paths", ["../x"], "allowed: a path below the repository"),
        ("behaviour__scenarios__book__path", ["seats/comand/book"], "did you mean 'seats/command/book'?"),
        ("behaviour__scenarios__book__asserts__male", {"what": []}, "did you mean 'mail'?"),
        ("behaviour__scenarios__free__asserts__seats__fixtures", ["row-2"], "did you mean 'row-1'?"),
        ("behaviour__fixtures__row-1", "seats/command/book", "allowed: seats/state/seats"),
        ("behaviour__effects__nobody", [], "names 'nobody'"),
        ("delivery__phases__nobody", [], "names 'nobody'"),
        ("delivery__phases__seats", ["implementation", "test_design"], "out of order"),
        ("delivery__phases__seats", ["implementing"], "did you mean 'implementation'?"),
        ("delivery__checks__seats__scenarios", ["fre"], "did you mean 'free'?"),
        ("delivery__checks__seats__made_in", "acceptance", "allowed: test_design, implementation"),
        ("delivery__checks__seats__kind", "make", "allowed: pytest, node, install"),
        ("delivery__checks__seats__target", "/etc/x", "a path below the repository"),
        ("delivery__budget__tokens", "many", "a whole number"),
        ("delivery__budget__turns", 0, "from 1"),
        ("delivery__polls__mail", [{"tool": "run_chek"}], "did you mean 'run_check'?"),
        ("delivery__mode", "fast", "allowed: tdd, direct"),
    ],
)
def test_a_mistake_is_refused_with_place_value_and_what_is_allowed(path: str, new: Any, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        changed(**{path: new})
    assert str(error.value).startswith("t.yaml:1: ")
    assert any(part in str(error.value) for part in told.split("|")), str(error.value)


def test_a_component_without_phases_is_refused() -> None:
    whole = value()
    del whole["delivery"]["phases"]["mail"]
    with pytest.raises(ConfigError, match=r"delivery\.phases names 'mail'"):
        declared(whole, "t.yaml")


def test_a_mistake_of_an_earlier_stage_is_told_first() -> None:
    whole = value()
    whole["structure"]["components"]["mail"]["needs"] = ["nobody"]
    whole["delivery"]["checks"]["mail"]["scenarios"] = ["nothing"]
    with pytest.raises(ConfigError, match="nobody"):
        declared(whole, "t.yaml")


def test_a_mistake_in_a_file_has_its_line() -> None:
    with pytest.raises(ConfigError, match=r"refused_name\.yaml:15: delivery\.checks\.unit\.scenarios\[0\]"):
        load(ROOT / "schedules" / "declarations" / "refused_name.yaml")


# --- the compiler ---------------------------------------------------------------------------------------------------


def test_the_plan_follows_from_the_declaration() -> None:
    compiled = compile(changed())
    seats, mail = compiled.delegations
    assert (seats.id, mail.id, mail.needs) == ("seats", "mail", ("seats",))
    assert seats.contract.writable == ("seats/**",)
    assert (seats.contract.checks, mail.contract.checks) == (("seats",), ("mail",))
    assert seats.contract.terms["fixtures"] == ["row-1"]
    assert mail.contract.terms["fixtures"] == []
    assert mail.contract.effects[0].key == ("event.subject",)
    assert compiled.system.coverage == {"seats": ("seats",), "mail": ("mail", "seats")}
    assert compiled.system.repairs["mail"].id == "repair/mail"
    book = Node(component="seats", kind="command", name="book")
    assert compiled.system.edges == (
        Edge(source=book, target=Node(component="mail", kind="subscriber", name="booked")),
    )


def test_rows_are_derived_and_not_the_union_over_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    declaration = changed()
    assert compiler.fixtures_of(declaration, "mail") == ()
    assert union_of_dependencies(declaration, "mail") == ("row-1",)
    monkeypatch.setattr(compiler, "fixtures_of", union_of_dependencies)
    assert compile(declaration).delegations[1].contract.terms["fixtures"] == ["row-1"]


def test_a_sub_agent_comes_after_its_parent_and_one_deeper() -> None:
    verifier = {**COMPONENT, "parent": "seats"}
    declaration = changed(structure__components__verifier=verifier, delivery__phases__verifier=["local_verification"])
    one = next(d for d in compile(declaration).delegations if d.id == "verifier")
    assert (one.parent, one.needs, one.component, one.depth) == ("seats", ("seats",), "seats", 2)


def test_packages_are_names_in_normal_form_and_pins_are_kept() -> None:
    one = compile(changed(delivery__packages__mail=["Mesh_Money==1.2.0"])).delegations[1]
    assert (one.contract.packages, one.contract.terms["pins"]) == (("mesh-money",), ["Mesh_Money==1.2.0"])


def test_the_direct_mode_leaves_the_test_driven_rung_out() -> None:
    phases = ["test_design", "red_validation", "implementation"]
    tdd, direct = (changed(delivery__phases__seats=phases, delivery__mode=mode) for mode in ("tdd", "direct"))
    assert compile(tdd).delegations[0].phases == tuple(phases)
    assert compile(direct).delegations[0].phases == ("test_design", "implementation")
    assert compile(direct).delegations[0].contract.mode == "direct"


PRINT = """
import json, sys
from arms.mesh.control.compiler import compile
from arms.mesh.control.declaration import declared
from msgspec import to_builtins
compiled = compile(declared(json.load(sys.stdin), sys.argv[1]))
print(compiled.digest, json.dumps(to_builtins(compiled.delegations)))
"""


def _shuffled(whole: Any) -> Any:
    """The same value with every mapping backwards."""
    if isinstance(whole, dict):
        return {key: _shuffled(item) for key, item in reversed(whole.items())}
    return [_shuffled(item) for item in whole] if isinstance(whole, list) else whole


def test_two_interpreters_compile_to_the_same_bytes() -> None:
    whole = load(SHOP).document.value
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT, source],
            input=json.dumps(form),
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed, form, source in (("1", whole, "a.yaml"), ("4242", _shuffled(whole), "elsewhere/b.yaml"))
    }
    assert len(found) == 1
    assert found.pop().startswith(compile(load(SHOP)).digest)


def test_white_space_comments_and_written_out_defaults_change_nothing(tmp_path: Path) -> None:
    whole = value()
    plain, spaced = tmp_path / "plain.yaml", tmp_path / "spaced.yaml"
    plain.write_text(json.dumps(whole))
    whole["structure"]["components"]["seats"]["needs"] = []
    spaced.write_text("# a comment\n\n" + json.dumps(whole, indent=3))
    assert compile(load(plain)).digest == compile(load(spaced)).digest


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(random: Any) -> None:
    def mixed(whole: Any) -> Any:
        if isinstance(whole, dict):
            return {key: mixed(whole[key]) for key in random.sample(sorted(whole), len(whole))}
        return whole

    assert compile(declared(mixed(value()), "t")) == compile(declared(value(), "t"))


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("delivery__budget__tokens", 40001),
        ("behaviour__scenarios__free__asserts__seats__what", ["another"]),
        ("delivery__toolchain__pytest__timeout_ms", 1),
    ],
)
def test_another_declaration_has_another_digest(path: str, new: Any) -> None:
    assert compile(changed(**{path: new})).digest != compile(changed()).digest
