"""The language of trace specifications: what each form means, what is shown of a violation, what a file may not say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec
import pytest
from handmade import Logs
from typer.testing import CliRunner

from harness.core import records
from harness.core.errors import ConfigError
from harness.core.types import PHASES, Verdict
from harness.specs import check, load, registered, row_of
from harness.specs.language import TRACE, TRUTH, Spec
from harness.trace_store import TraceStore

HEAD = "schema: agentmesh-specs/1\nspecs:\n"


def parsed(tmp_path: Path, text: str) -> tuple[Spec, ...]:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + text)
    return load(path)


@pytest.fixture
def spec(tmp_path: Path):
    """One specification from what follows its id."""
    return lambda text: parsed(tmp_path, f"  - {{id: mine, says: so, {text}}}\n")


def found(logs: Logs, specs: tuple[Spec, ...]) -> list[tuple[int, list[str]]]:
    """How often it is broken, and the prefix of the first time, as kinds with their `x`."""
    return [(v.times, [f"{e.kind}{e.data.get('x', '')}" for e in v.prefix]) for v in check(logs.trial(), specs)]


def story(*events: str) -> Logs:
    """Events of the trace by kind and key: `turn:a` is a turn with x = a."""
    logs = Logs()
    for event in events:
        kind, _, x = event.partition(":")
        logs.note(kind, x=x)
    return logs


# --- the forms ----------------------------------------------------------------------------------------------------


def test_never(spec) -> None:
    never = spec("never: {event: turn, where: {x: b}}")
    assert found(story("turn:a"), never) == []
    assert found(story("turn:a", "turn:b", "turn:b"), never) == [(2, ["turnb"])]


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        (["phase:a", "turn:a"], []),
        (["turn:a", "phase:a"], [(1, ["turna"])]),
        (["phase:b", "turn:a"], [(1, ["turna"])]),
        (["phase:a", "attempt:a", "turn:a"], [(1, ["phasea", "attempta", "turna"])]),
        (["phase:a", "attempt:b", "turn:a"], []),
        (["phase:a", "turn:a", "attempt:a", "turn:a", "phase:a", "turn:a"], [(1, ["phasea", "attempta", "turna"])]),
        (["phase:a", "attempt:a", "phase:a", "turn:a"], []),
    ],
)
def test_needs_unless(spec, events: list[str], broken: list) -> None:
    needs = "each: {event: turn}, needs: {event: phase, same: [x]}, unless: [{event: attempt, same: [x]}]"
    assert found(story(*events), spec(needs)) == broken


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        (["turn:a", "phase:a"], []),
        (["phase:b", "turn:a"], []),
        (["phase:a", "turn:a", "turn:a"], [(2, ["phasea", "turna"])]),
        (["phase:a", "attempt:a", "turn:a"], []),
        (["phase:a", "attempt:a", "phase:a", "turn:a"], [(1, ["phasea", "turna"])]),
    ],
)
def test_not_after_unless(spec, events: list[str], broken: list) -> None:
    never = "each: {event: turn}, not_after: {event: phase, same: [x]}, unless: [{event: attempt, same: [x]}]"
    assert found(story(*events), spec(never)) == broken


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        (["turn:a", "phase:a"], []),
        (["phase:a", "turn:a"], [(1, ["turna", "trial"])]),
        (["turn:a", "attempt:a"], []),
        (["turn:a", "turn:b", "phase:b"], [(1, ["turna", "trial"])]),
    ],
)
def test_then_unless(spec, events: list[str], broken: list) -> None:
    then = "each: {event: turn}, then: {event: phase, same: [x]}, unless: [{event: attempt, same: [x]}]"
    assert found(story(*events), spec(then)) == broken


def test_at_most(spec) -> None:
    most = spec("each: {event: turn}, at_most: 2, per: [x]")
    assert found(story("turn:a", "turn:a", "turn:b"), most) == []
    assert found(story("turn:a", "turn:a", "turn:b", "turn:a"), most) == [(1, ["turna", "turna", "turna"])]


def test_rising_by_value_and_by_place(spec) -> None:
    up = spec("each: {event: turn}, rising: {field: x}")
    assert found(story("turn:a", "turn:a", "turn:b"), up) == []
    assert found(story("turn:b", "turn:a"), up) == [(1, ["turnb", "turna"])]
    strictly = spec("each: {event: turn}, rising: {field: x, in_order: [b, a], strictly: true}")
    assert found(story("turn:b", "turn:a"), strictly) == []
    assert found(story("turn:b", "turn:b"), strictly) == [(1, ["turnb", "turnb"])]


def test_within(spec) -> None:
    assert found(story("turn:c"), spec("each: {event: turn}, within: {field: x, one_of: [a, b]}")) == [(1, ["turnc"])]
    logs = Logs()
    for value in (0, 3, 4, None):
        logs.note("turn", n=value)
    bounded = check(logs.trial(), spec("each: {event: turn}, within: {field: n, least: 0, most: 3}"))
    assert [(v.times, v.event_index) for v in bounded] == [(2, 2)]


def test_conditions(spec) -> None:
    logs = Logs()
    logs.note("turn", n=2, tags=["a"], name="x")
    for where, meant in {
        "n: 2": True,
        "n: [1, 2]": True,
        "n: {not: 2}": False,
        "n: {not_in: [3]}": True,
        "n: {least: 2, below: 3}": True,
        "n: {above: 2}": False,
        "n: {most: 1}": False,
        "tags: {has: a}": True,
        "absent: {has: a}": False,
        "absent: {known: false}": True,
        "name: null": False,
    }.items():
        assert bool(check(logs.trial(), spec(f"never: {{event: turn, where: {{{where}}}}}"))) is meant, where


def test_it_is_asked_only_where_it_applies(spec) -> None:
    when = spec("applies_when: {event: onion, where: {layers: {has: Ledger}}}, never: {event: turn}")
    with_it, without = story("turn:a"), story("turn:a")
    with_it.note("onion", layers=["Ledger"])
    without.note("onion", layers=["Other"])
    assert (len(check(with_it.trial(), when)), check(without.trial(), when)) == (1, ())


def test_fields_of_the_call_are_at_hand_at_its_outcome(spec) -> None:
    logs = Logs()
    site = {"delegation": "d", "phase": "p", "seam": "S3", "name": "publish"}
    logs.note("call", call="commit", call_id="c", site=site, attempt=1)
    logs.note("outcome", call_id="c", result="ok")
    logs.note("checkpoint", delegation="d", attempt=2)
    asked = "each: {event: checkpoint}, needs: {event: outcome/commit, where: {name: publish}, same: [delegation%s]}"
    assert check(logs.trial(), spec(asked % "")) == ()
    assert len(check(logs.trial(), spec(asked % ", attempt"))) == 1
    (never,) = check(logs.trial(), spec("never: {event: outcome/commit}"))
    assert [e.kind for e in never.prefix] == ["call", "outcome"]  # its call is told with it


def test_fields_may_have_other_names_and_lists_as_values(spec) -> None:
    logs = Logs()
    logs.note("phase", y=["a", 1])
    logs.note("turn", x=["a", 1])
    logs.note("turn", x=["b"])
    broken = check(logs.trial(), spec("each: {event: turn}, needs: {event: phase, same: {x: y}}"))
    assert [(v.times, v.event_index, v.log) for v in broken] == [(1, 2, "trace")]


def test_between_the_two_logs_an_instant_has_no_order(spec) -> None:
    """The crossing and the note that allows it have one time: it is broken only where every order breaks it."""
    logs = Logs()
    logs.tick_ms = 0.0
    logs.really("crossed", x=1)
    logs.note("turn", x=1)
    needs, never = (
        "each: {event: crossed}, needs: {event: turn, same: [x]}",
        "each: {event: crossed}, not_after: {event: turn}",
    )
    assert (check(logs.trial(), spec(needs)), check(logs.trial(), spec(never))) == ((), ())
    logs.tick_ms = 1.0
    logs.really("crossed", x=1)
    assert [v.event_index for v in check(logs.trial(), spec(never))] == [1]
    late = Logs()
    late.really("crossed", x=1)
    late.note("turn", x=1)
    assert len(check(late.trial(), spec(needs))) == 1


def test_an_invalid_trial_breaks_nothing_and_a_stuck_one_says_so(spec) -> None:
    never = spec("never: {event: trial, where: {status: stuck}}")
    assert check(story("turn:a").trial(status="invalid"), spec("never: {event: turn}")) == ()
    assert [v.prefix[-1].data["status"] for v in check(story().trial(status="stuck"), never)] == ["stuck"]


def test_a_row_says_where_the_violation_is(spec) -> None:
    trial = story("turn:a").trial(id="t7", arm="mesh")
    (violation,) = check(trial, spec("never: {event: turn}"))
    row = row_of(trial, violation)
    assert {k: row[k] for k in ("trial", "arm", "spec", "times", "log", "event_index")} == {
        **{"trial": "t7", "arm": "mesh", "spec": "mine", "times": 1, "log": "trace", "event_index": 0}
    }
    assert row["prefix"] == [{"at_ms": 1.0, "epoch": 0, "kind": "turn", "data": {"x": "a"}}]
    assert msgspec.json.decode(msgspec.json.encode(row)) == row


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("never: {event: trun}", "did you mean 'turn'?"),
        ("never: {event: call/efect}", "did you mean 'effect'?"),
        ("never: {event: turn/x}", "unknown kind of event 'turn/x'"),
        ("never: {event: turn, were: {}}", "did you mean 'where'?"),
        ("never: {event: turn, where: {n: {lest: 1}}}", "did you mean 'least'?"),
        ("never: {event: [turn, crossed]}", "not of one log"),
        ("each: {event: turn}", "says nothing"),
        ("each: {event: turn}, never: {event: turn}", "needs `each`"),
        ("each: {event: turn}, at_most: 1, then: {event: turn}", "says then, at_most"),
        ("needs: {event: turn}", "needs `each`"),
        ("each: {event: turn}, at_most: 1, unless: [{event: turn}]", "`unless` means nothing"),
        ("never: {event: turn}, per: [x]", "`per` means nothing"),
    ],
)
def test_a_mistake_is_refused_with_its_line(spec, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        spec(text)
    assert "mine.yaml:3" in str(refused.value)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        parsed(tmp_path, "  - {id: a, says: so, never: {event: turn}}\n" * 2)


def test_the_registered_ones_name_the_closed_lists_as_they_are() -> None:
    specs = {spec.id: spec for spec in registered()}
    assert len(specs) >= 30
    within, rising = specs["verdict_is_known"].within, specs["phases_in_order"].rising
    assert within is not None
    assert rising is not None
    assert within.one_of == (None, *Verdict)
    assert rising.in_order == PHASES


def test_every_kind_of_event_that_is_recorded_can_be_spoken_of() -> None:
    told = ast.get_docstring(ast.parse(Path(records.__file__).read_text())) or ""
    trace, truth = re.findall(r"^  ?(\w+(?:/\w+)?) +\{", told.split("**truth**")[0], re.M), told.split("**truth**")[1]
    kinds = {kind for named in re.findall(r"^  ?(\w+(?:/\w+)?) +\{", truth, re.M) for kind in named.split("/")}
    assert set(trace) == set(TRACE)
    assert kinds == set(TRUTH)


# --- the command --------------------------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    import typer

    from harness.commands import specs

    app = typer.Typer()
    app.callback()(lambda: None)
    specs.add(app)
    done = CliRunner().invoke(app, ["specs", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TraceStore.create(tmp_path / "run", {}) as store:
        for name, events in (("good", ["phase:a", "turn:a"]), ("bad", ["turn:a", "turn:b"])):
            trial = story(*events).trial(id=name)
            store.seal(trial.record, trial.trace, trial.truth)
    return tmp_path / "run"


def test_the_command_prints_each_violation_with_its_prefix(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(HEAD + "  - {id: mine, says: A turn has a phase., each: {event: turn}, needs: {event: phase}}\n")
    code, said = run(str(folder), "--specs", str(mine), "--gate")
    assert code == 1
    assert "trial bad  pair 0  arm naive  x\n  mine, 2 times: A turn has a phase.\n" in said
    assert "0.001 s  e0  turn           x=a\n" in said
    assert said.endswith("1 specifications, 2 trials checked, 1 with violations\n")
    assert run(str(folder), "--specs", str(mine), "--trial", "good", "--gate")[0] == 0


def test_the_command_lists_what_is_checked_and_wants_a_run() -> None:
    code, said = run("--list")
    assert code == 0
    assert [line.split(":")[0] for line in said.splitlines()] == [spec.id for spec in registered()]
    assert "told ok. (only in trials with an arm whose layers include EffectLedger)" in said
    assert not set("`{}[]") & set(said)
    with pytest.raises(ConfigError, match="no run"):
        run()
