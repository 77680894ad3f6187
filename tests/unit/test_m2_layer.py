"""The layer that asks the gates: what it refuses, what it keeps, what a person lets through."""

from __future__ import annotations

import sys
from datetime import date
from typing import Any

import pytest
from msgspec.structs import replace

from arms.mesh.gates import files
from arms.mesh.m2_exoneration import Gates, digest_of_call
from arms.mesh.waiver import Waiver
from harness.core.types import (
    Attempt,
    Commit,
    Delegation,
    DelegationOutcome,
    EffectContract,
    Err,
    Ok,
    Outcome,
    Refused,
    Seam,
    Site,
    Verdict,
)
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import Notes, Time, context, effect, model, run, tool


class Bench:
    """The layer over a base that answers as told."""

    def __init__(self, contract: EffectContract, *, store: Any = None, **more: Any) -> None:
        self.notes, self.time = Notes(), Time()
        self.store = store or SqliteStore(":memory:")
        epoch = more.pop("epoch", 0)
        ctx = context(self.store, time=self.time, note=self.notes, contract=contract, epoch=epoch)
        self.layer = Gates(ctx, **{"waivers": (), **more})
        self.sent: list[Any] = []

    def tool(self, name: str, answer: Outcome | None = None, took_ms: float = 0.0, **fields: Any) -> Outcome:
        async def next(call: Any) -> Outcome:
            self.sent.append(call)
            self.time.now += took_ms
            return answer or Ok(value="ok")

        return run(self.layer.on_tool(tool(name, **fields), next))

    def cross(self, call: Any, answer: Outcome | None = None) -> Outcome:
        async def next(call: Any) -> Outcome:
            self.sent.append(call)
            return answer or Ok()

        handler = self.layer.on_commit if isinstance(call, Commit) else self.layer.on_effect
        return run(handler(call, next))


def commit(step: Any = "stage", phase: str = "p", **changes: str | None) -> Commit:
    site = Site(delegation="d", phase=phase, seam=Seam.COMMIT, name=step)
    return Commit(site=site, call_id="k", attempt=1, step=step, changes=changes)


def verdict(outcome: Outcome) -> str:
    return outcome.verdict.value if isinstance(outcome, Refused) else "sent"


def test_a_refusal_is_noted_and_tells_what_would_do() -> None:
    bench = Bench(EffectContract(writable=("orders/**",)))
    outcome = bench.tool("write", args={"path": "billing/a", "content": "1"})
    assert isinstance(outcome, Refused)
    assert outcome.verdict is Verdict.REJECTED
    assert "orders/**" in outcome.because
    assert bench.sent == []
    (note,) = [data for kind, data in bench.notes if kind == "gate"]
    assert (note["gate"], note["ruling"], note["call_id"]) == ("write_set", "reject", "t1")


def test_a_clamp_yields_at_the_second_request_and_stays_open_for_that_file() -> None:
    bench = Bench(EffectContract(writable=("**",), terms={"clamp": ["a/*"]}))
    said = [verdict(bench.tool("edit", args={"path": p, "old": "1", "new": "2"})) for p in ("b", "b", "b", "c", "a/x")]
    assert said == ["rejected-by-gate", "sent", "sent", "rejected-by-gate", "sent"]


def test_a_gate_that_breaks_gives_no_verdict_and_a_person_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any, view: Any) -> Any:
        raise OSError("the reviewer is not there")

    monkeypatch.setattr(files, "write_set", broken)
    outcome = Bench(EffectContract()).tool("write", args={"path": "a", "content": "1"})
    assert verdict(outcome) == "awaiting-waiver"
    assert "could not judge" in outcome.because  # type: ignore[union-attr]


def test_every_gate_is_looked_up_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(EffectContract(writable=()))
    monkeypatch.setattr(sys.modules["arms.mesh.gates.files"], "write_set", lambda call, view: files.ALLOW)
    assert verdict(bench.tool("write", args={"path": "a", "content": "1"})) == "sent"


def test_what_a_runner_left_is_left_out_of_the_commit() -> None:
    bench = Bench(EffectContract(writable=("**/*.py",)))
    bench.tool("write", Ok(value={"digest": "d"}), args={"path": "a/x.py", "content": "1"})
    bench.cross(commit(**{"a/x.py": "d", "a/.lock": files.EMPTY, "a/empty.py": files.EMPTY, "a/made.py": "m"}))
    assert bench.sent[-1].changes == {"a/x.py": "d", "a/made.py": "m"}
    assert "gate-dropped" in bench.notes.kinds()


def test_after_a_restart_an_empty_file_may_be_the_agents() -> None:
    bench = Bench(EffectContract(writable=("**",)), epoch=1)
    bench.cross(commit(**{"a/__init__.py": files.EMPTY}))
    assert bench.sent[-1].changes == {"a/__init__.py": files.EMPTY}


def test_a_cut_answer_spoils_its_last_call_only() -> None:
    bench = Bench(EffectContract(writable=("**",)))
    calls = [{"name": "write", "arguments": f'{{"path": "{p}", "content": "1"}}'} for p in ("a", "b")]

    async def answer(call: Any) -> Outcome:
        return Ok(value={"id": "1", "tool_calls": calls, "finish_reason": "length"})

    run(bench.layer.on_model(model(), answer))
    said = [verdict(bench.tool("write", args={"path": p, "content": "1"}, index=i)) for i, p in enumerate(("a", "b"))]
    assert said == ["sent", "rejected-by-gate"]
    assert verdict(bench.tool("write", args={"path": "b", "content": "1"}, turn=1)) == "sent"


def test_an_outcome_that_nobody_knows_holds_back_what_leaves_in_this_attempt() -> None:
    bench = Bench(EffectContract(tool_limit_ms=1000))
    bench.tool("shell", Ok(value=""), took_ms=2000, args={"cmd": "migrate"})
    assert verdict(bench.tool("publish", args={"v": 1})) == "routed"
    assert verdict(bench.tool("file.read", args={"path": "a"})) == "sent"
    assert verdict(bench.tool("publish", args={"v": 1}, attempt=2)) == "sent"


def test_a_doubt_survives_the_process_and_ends_with_the_effect() -> None:
    store = SqliteStore(":memory:")
    Bench(EffectContract(), store=store).tool("journal.append", Err(code="error", definite=False), args={"n": 1})
    bench = Bench(EffectContract(), store=store, epoch=1)
    assert verdict(bench.tool("cleanup", args={"scope": "x"})) == "awaiting-waiver"
    bench.tool("journal.append", args={"n": 1})
    assert verdict(bench.tool("cleanup", args={"scope": "x"})) == "sent"
    assert store.query("SELECT * FROM gate_doubts") == []


def test_repeating_a_failure_is_refused_and_parked_while_work_is_out() -> None:
    bench = Bench(EffectContract())
    failed = Err(code="error", definite=False)
    said = [verdict(bench.tool("turn.end", failed)) for _ in range(2)]
    bench.tool("bg.start", Ok(value="t1"), args={"suites": 4})
    bench.tool("turn.end", failed)
    said += [verdict(bench.tool("turn.end", failed))]
    bench.tool("bg.result", Ok(value="green"), args={"task": "t1"})
    said += [verdict(bench.tool("turn.end"))]
    assert said == ["sent", "rejected-by-gate", "awaiting-waiver", "sent"]


def test_a_repair_is_routed_to_the_source_of_a_refused_hand_off() -> None:
    bench = Bench(EffectContract(handoffs={"researcher": ("writer",)}))
    bench.tool("handoff", args={"from": "researcher", "to": "reviewer"})
    (note,) = [data for kind, data in bench.notes if kind == "gate"]
    assert note["fields"] == {"source": "researcher", "target": "reviewer", "allowed": ["writer"]}
    outcome = bench.tool("repair.config", args={"agent": "reviewer"})
    assert verdict(outcome) == "routed"
    assert "researcher" in outcome.because  # type: ignore[union-attr]
    assert verdict(bench.tool("handoff", args={"from": "researcher", "to": "writer"})) == "sent"
    assert verdict(bench.tool("repair.config", args={"agent": "reviewer"})) == "sent"


def test_phases_are_taken_in_the_order_of_the_delegation() -> None:
    bench = Bench(EffectContract(writable=("**",)))
    d = Delegation(id="d", tenant="t", goal="g", phases=("one", "two"), contract=EffectContract(writable=("**",)))

    steps = (("stage", "two"), ("publish", "one"), ("stage", "one"), ("publish", "one"), ("stage", "two"))

    async def next(attempt: Attempt) -> DelegationOutcome:
        said = [verdict(bench.cross(commit(step, phase))) for step, phase in steps]
        return DelegationOutcome(status="done", because=" ".join(said))

    outcome = run(bench.layer.on_delegate(Attempt(delegation=d), next))
    assert outcome.because == "rejected-by-gate rejected-by-gate sent sent sent"


def test_a_delegation_that_is_woken_again_begins_with_its_first_phase() -> None:
    bench = Bench(EffectContract(writable=("**",)))
    d = Delegation(id="d", tenant="t", goal="g", phases=("one",), contract=EffectContract(writable=("**",)))

    async def next(attempt: Attempt) -> DelegationOutcome:
        said = [verdict(bench.cross(replace(commit(s, "one"), attempt=attempt.number))) for s in ("stage", "publish")]
        return DelegationOutcome(status="done", because=" ".join(said))

    for number in (1, 2):
        outcome = run(bench.layer.on_delegate(Attempt(delegation=d, number=number, again=number > 1), next))
        assert outcome.because == "sent sent"


def test_what_m6_holds_in_quarantine_accepts_nothing() -> None:
    class Unsettled:
        def unsettled(self, delegation: str) -> frozenset[str]:
            return frozenset({"flow"})

    bench = Bench(EffectContract(checks=("flow",), writable=("**",)), observations=Unsettled())
    bench.tool("run_check", Ok(value={"passed": True, "failing": []}), args={"check": "flow"})
    bench.cross(commit("stage"))
    assert verdict(bench.cross(commit("publish"))) == "rejected-by-gate"


def test_an_undeclared_effect_does_not_leave() -> None:
    bench = Bench(EffectContract())
    assert verdict(bench.cross(effect())) == "rejected-by-gate"
    assert verdict(bench.cross(replace(effect(), boundary="tool"))) == "sent"


WRITE = tool("write", args={"path": "billing/a", "content": "1"})


@pytest.mark.parametrize(
    ("what", "digest", "until", "wanted"),
    [
        ("write_set", digest_of_call(WRITE), date(2026, 12, 31), "sent"),
        ("write_set", digest_of_call(WRITE), date(2026, 1, 1), "rejected-by-gate"),
        ("phase_order", digest_of_call(WRITE), date(2026, 12, 31), "rejected-by-gate"),
        ("write_set", "0" * 64, date(2026, 12, 31), "rejected-by-gate"),
    ],
)
def test_a_waiver_lets_one_call_through_one_gate_until_its_day(
    what: str, digest: str, until: date, wanted: str
) -> None:
    paper = Waiver(who="A. Person", why="agreed", until=until, what=what, digest=digest)
    bench = Bench(EffectContract(writable=("orders/**",)), waivers=(paper,), today=date(2026, 6, 1))
    assert verdict(bench.tool("write", args=WRITE.args)) == wanted
    assert ("waiver-used" in bench.notes.kinds()) is (wanted == "sent")


def test_without_a_date_no_waiver_holds() -> None:
    paper = Waiver(who="A", why="b", until=date(2099, 1, 1), what="write_set", digest=digest_of_call(WRITE))
    bench = Bench(EffectContract(writable=()), waivers=(paper,))
    assert verdict(bench.tool("write", args=WRITE.args)) == "rejected-by-gate"


def test_a_digest_does_not_depend_on_ids() -> None:
    assert digest_of_call(WRITE) == digest_of_call(replace(WRITE, call_id="other", turn=7))
    assert digest_of_call(WRITE) != digest_of_call(replace(WRITE, args={"path": "billing/b", "content": "1"}))
