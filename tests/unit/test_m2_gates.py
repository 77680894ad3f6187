"""The gates by themselves: correct work passes all of them, and each of them is armed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from arms.mesh.gates import GATES, evidence, former
from arms.mesh.gates.base import ALLOW, Gate, judge, reject
from arms.mesh.gates.code import husks_in
from arms.mesh.gates.corpus import Corpus, Member, broken, load, scene
from arms.mesh.gates.learn import learn_tool
from arms.mesh.gates.seeds import reached_by
from arms.mesh.gates.shell import runs
from arms.mesh.gates.view import PAST_MAX, SOURCES_MAX, View
from arms.mesh.m2_exoneration import armed, boot_check, objections, unprovable
from harness.core.errors import ConfigError
from harness.core.types import EffectContract, Ok, ToolCall
from tests.unit.armbench import tool

CORPUS = load()
MEMBERS = CORPUS.members
BY_NAME = {gate.name: gate for gate in GATES}
BREAKS = [(m, how, wrong) for m in MEMBERS for how, wrong in broken(CORPUS, m)]


def test_there_are_at_least_thirteen_gates_each_with_artifacts_of_its_own() -> None:
    assert len(GATES) >= 13
    assert len(BY_NAME) == len(GATES)
    assert {member.gate for member in MEMBERS} == set(BY_NAME)


def test_no_gate_rejects_an_artifact_that_is_known_to_be_correct() -> None:
    assert objections(GATES, CORPUS) == ()
    boot_check()


@pytest.mark.parametrize(("member", "how", "wrong"), BREAKS, ids=[f"{m.id}-{h.how}" for m, h, _ in BREAKS])
def test_the_gate_of_an_artifact_refuses_it_once_it_is_broken(member: Member, how: Any, wrong: Member) -> None:
    assert not judge(BY_NAME[member.gate], *scene(wrong)).allowed


def test_no_gate_is_unprovable() -> None:
    assert unprovable() == ()
    assert all(len(armed(gate)) >= 1 for gate in GATES)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_gate_that_lets_everything_through_is_reported(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[gate.module], gate.name, lambda call, view: ALLOW)
    assert unprovable() == (gate.name,)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_gate_that_refuses_everything_may_not_start(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[gate.module], gate.name, lambda call, view: reject("no"))
    with pytest.raises(ConfigError) as error:
        boot_check()
    assert gate.name in str(error.value)
    assert any(member.id in str(error.value) for member in MEMBERS)


FAULTY = sorted(set(former.FORMER) - {"citation_appeal"})


@pytest.mark.parametrize("name", [*FAULTY, "citation_appeal"])
def test_no_gate_of_before_an_incident_may_start(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        boot_check((former.FORMER[name],))
    assert name in str(error.value)


def test_a_wrongly_permissive_gate_shows_in_what_it_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    """An appeal on a generated artifact is wrong, and only a break of a member can tell that it is let through."""
    gate = BY_NAME["citation_appeal"]
    before = set(armed(gate))
    monkeypatch.setattr(evidence, "generated", former.generated)
    boot_check()
    missed = before - set(armed(gate))
    assert missed == {
        "quotation-from-another-shown-source: against a generated file",
        "quotation-from-another-shown-source: a line of a generated file",
        "appeal-beside-declared-generated-files: the file is declared as generated",
    }


def test_a_gate_that_refuses_the_artifact_itself_is_not_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "provenance", lambda call, view: reject("no"))
    assert unprovable() == ("provenance",)


def test_gates_are_pure() -> None:
    for member in MEMBERS:
        call, view = scene(member)
        before = msgspec.json.encode([call, _plain(view)])
        first = [judge(gate, call, view) for gate in GATES]
        assert [judge(gate, call, view) for gate in GATES] == first
        assert msgspec.json.encode([call, _plain(view)]) == before


def _plain(view: View) -> Any:
    return msgspec.to_builtins(view, order="sorted")


def test_python_artifacts_compile() -> None:
    texts = [
        str(m.call.args["content"])
        for m in MEMBERS
        if m.gate in ("base_class_idiom", "seed_handlers") and "content" in m.call.args
    ]
    assert len(texts) > 10
    for text in texts:
        compile(text, "artifact", "exec")
        assert ast.parse(text)


def test_a_break_that_breaks_nothing_is_an_error() -> None:
    member = next(m for m in MEMBERS if m.breaks)
    raw = {**CORPUS.raw[member.id], "breaks": [{"how": "not at all", "at": "call.tool", "put": member.call.tool}]}
    with pytest.raises(ConfigError, match="changes nothing"):
        list(broken(Corpus((member,), {member.id: raw}), msgspec.convert(raw, Member)))


def test_an_artifact_that_nobody_verified_is_refused(tmp_path: Any) -> None:
    member = "{id: m, gate: g, verified_by: '', call: {}, breaks: []}"
    (tmp_path / "a.yaml").write_text(f"schema: agentmesh-corpus/1\nversion: 1\nmembers:\n  - {member}\n")
    with pytest.raises(ConfigError, match="nobody verified"):
        load(tmp_path)


# --- what single rules hang on ------------------------------------------------------------------------------------

RUNS = [
    ("git push", True),
    ("git  push --force origin", True),
    ("cd repo && git push", True),
    ("cd repo; git push", True),
    ("true || git push", True),
    ("true\ngit push", True),
    ("(git push)", True),
    ("x=$(git push)", True),
    ("echo `git push`", True),
    ('echo "$(echo $(git push))"', True),
    ("FOO=1 BAR=2 git push", True),
    ("sudo -n git push", True),
    ("bash -lc 'cd x && git push'", True),
    ("eval 'git push'", True),
    ("if true; then git push; fi", True),
    ("/usr/bin/git push", True),
    ("bash <<'EOF'\ngit push\nEOF", True),
    ("cat <<EOF\n$(git push)\nEOF", True),
    ("cat <<'EOF'\nx\nEOF\ngit push", True),
    ("git pull", False),
    ("gitpush", False),
    ("echo git push", False),
    ("echo 'x; git push'", False),
    ('git commit -m "never git push; really"', False),
    ("echo '$(git push)'", False),
    ("true # git push", False),
    ("cat <<'EOF'\n$(git push)\ngit push\nEOF", False),
    ("cat <<-EOF\n\tgit push\n\tEOF\nls", False),
    ("cat <<EOF > a && ls\ngit push\nEOF", False),
    ("append notes <<quoted ... git push ... >>", False),
    ("grep -rn 'git push' docs | wc -l", False),
]


@pytest.mark.parametrize(("text", "wanted"), RUNS)
def test_what_a_shell_would_run(text: str, wanted: bool) -> None:
    assert runs(text, "git push") is wanted


HUSKS = [
    ("class A:\n    pass\n", ["A"]),
    ("class A:\n    x = 1\n", []),
    ("class A(Base):\n    pass\n", []),
    ("class A(kit.Base): ...\n", []),
    ("class A(Base[int], metaclass=M): ...\n", []),
    ("class A(make()): ...\n", []),
    ("B = make()\nclass A(B): ...\n", []),
    ("class A(Base):\n    x = 1\nclass C(A): ...\n", []),
    ("class A(Mixin, Base): ...\n", []),
    ("class A(Mixin): ...\n", ["A"]),
    ("class A(ValueError): ...\n", []),
    ("class A(Exception):\n    'why'\n", []),
    ("def f():\n    class A: ...\n", ["A"]),
    ("class A(:\n", []),
]


@pytest.mark.parametrize(("text", "wanted"), HUSKS)
def test_what_a_husk_is(text: str, wanted: list[str]) -> None:
    assert list(husks_in(text, frozenset({"Base", "make"}))) == wanted


SEAMS = {"app.dispatch": {"a": "app.h.make", "b": "app.h.drop"}}
REACHED = [
    ("from app.h import make\nmake()", True),
    ("from app.h import make as m\nfor x in y: m(x)", True),
    ("import app.h\napp.h.make()", True),
    ("import app.h as h\nz = [h.make]", True),
    ("from app.dispatch import go\ngo('a')", True),
    ("from app.dispatch import go\ngo(name)", True),
    ("from app.dispatch import TABLE\nTABLE['a']()", True),
    ("from app.dispatch import go\ngo('b')", False),
    ("from app.h import make", False),
    ("def make(): ...\nmake()", False),
    ("from app.h import make\ndef make(): ...\nmake()", False),
    ("from app.g import make\nmake()", False),
    ("'app.h.make'", False),
]


@pytest.mark.parametrize(("text", "wanted"), REACHED)
def test_what_a_seed_reaches(text: str, wanted: bool) -> None:
    reached = reached_by(text, SEAMS)
    assert reached is not None
    assert ("app.h.make" in reached) is wanted


def test_the_view_is_bounded() -> None:
    view = View(contract=EffectContract(writable=("**",)))
    for n in range(PAST_MAX + SOURCES_MAX):
        call: ToolCall = tool("read", args={"path": f"f{n}"})
        learn_tool(view, call, Ok(value={"content": "x" * 100_000, "digest": "d"}), 1.0)
    assert len(view.past) == PAST_MAX
    assert len(view.sources) == SOURCES_MAX
    assert max(len(source.text) for source in view.sources.values()) < 100_000


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        (lambda: Corpus((replace(MEMBERS[0], gate="nosuch"), *MEMBERS[1:]), CORPUS.raw), "the gate 'nosuch'"),
        (lambda: Corpus(tuple(m for m in MEMBERS if m.gate != "write_set"), CORPUS.raw), "'write_set' has no member"),
        (lambda: Corpus((), {}), "has no member"),
    ],
)
def test_a_corpus_that_proves_too_little_stops_the_arm(corpus: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        boot_check(GATES, corpus())


@pytest.mark.parametrize(("at", "said"), [("gate", "changes nothing"), ("call.zork.check", "finds nothing")])
def test_a_break_that_breaks_nothing_stops_the_arm(at: str, said: str) -> None:
    member = next(m for m in MEMBERS if m.breaks)
    idle = replace(member.breaks[0], at=at, put=member.gate, swap=None)
    members = tuple(replace(m, breaks=(idle,)) if m is member else m for m in MEMBERS)
    with pytest.raises(ConfigError, match=said) as refused:
        boot_check(GATES, Corpus(members, CORPUS.raw))
    assert member.id in str(refused.value)


def test_a_scene_that_tells_of_no_call_is_refused_by_name() -> None:
    member = replace(MEMBERS[0], call=replace(MEMBERS[0].call, tool="", commit={"changes": {}}))
    with pytest.raises(ConfigError, match=f"{member.id}.*KeyError"):
        scene(member)


@pytest.mark.parametrize(
    "text", [None, "", "members: " + "[" * 5000, "schema: agentmesh-corpus/1\nversion: 1\nmembers: []"]
)
def test_a_folder_without_a_corpus_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path)
    assert str(tmp_path) in str(refused.value)
    with pytest.raises(ConfigError, match="no corpus file"):
        load(tmp_path / "none")
