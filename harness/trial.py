"""One trial: the onion is put together, driven to its end through every restart, and handed back as two logs.

A trial is a function of its spec. Arms, faults and workloads arrive as values; nothing here knows how it is judged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from harness.core import rng
from harness.core.clock import Clock
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import RECORDER, Event, TrialRecord
from harness.core.roles import Arm, ArmContext, Fault, FaultClass, Task, Workload
from harness.core.seams import Crossings, NextDelegate, PassThrough, compose
from harness.core.stopwatch import Stopwatch
from harness.core.types import (
    Attempt,
    Commit,
    DelegationOutcome,
    EffectCall,
    Err,
    Json,
    ModelCall,
    Ok,
    Outcome,
    Probe,
    Refused,
    ToolCall,
)
from harness.inject import Injector, shape
from harness.orchestrator.arm_store import ArmStore
from harness.orchestrator.delegate import Env, run_attempt
from harness.orchestrator.store import Journal, SqliteStore
from harness.world.protocol import World

RESTART_MS = 1_000.0
"""Nominal time between the death of an orchestrator and its next start, the same for every arm."""

PAUSE_MS = 500.0
"""Nominal time after which an orchestrator looks again at what those of other hosts have ended."""

SHOWN_CHARACTERS = 400

Note = Callable[[str, Mapping[str, Json]], None]


class Spec(Protocol):
    """What a trial reads of a schedule's TrialSpec. limits: with nominal_ms, tokens, turns and restarts."""

    @property
    def id(self) -> str: ...
    @property
    def pair(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def workload(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def world(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def variation(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def fault_class(self) -> str: ...
    @property
    def variants(self) -> tuple[str, ...]: ...
    @property
    def settle_ms(self) -> float: ...
    @property
    def limits(self) -> Any: ...


class TrialResult(Struct, frozen=True):
    record: TrialRecord
    trace: list[Event]
    truth: list[Event]


class Life(Struct, frozen=True, kw_only=True):
    """One process of an orchestrator. number: among all processes of the trial, in the order of their starts. host: ""
    where there is only one. before: how many processes that host had before."""

    number: int = 0
    host: str = ""
    before: int = 0

    def told(self) -> dict[str, Json]:
        """What the trace says of it."""
        return {"epoch": self.number, **({"host": self.host} if self.host else {}), "recorder": RECORDER}


class Parts(Struct, frozen=True):
    """The values that a spec's names stand for. `fault_class` None is the no-fault twin."""

    workload: Workload
    arm: Arm
    fault_class: type[FaultClass] | None


def plan_faults(parts: Parts, variants: Sequence[str], task: Task) -> tuple[Fault, ...]:
    """The faults of a trial: pure in the task's seed, so all arms of a pair meet the same ones."""
    if parts.fault_class is None:
        return ()

    def pick(name: str, n: int) -> int:
        return rng.integer(task.seed, 0, n - 1, "fault", name)

    return tuple(parts.fault_class.plan(variant, i, task.sites, pick) for i, variant in enumerate(variants))


class Log:
    """A numbered event list with the time of each event and the number of the process that it is of. `sink` gets each
    event as it comes. numbers: shared by those who write one list."""

    def __init__(
        self, clock: Clock, sink: Callable[[Event], None], epoch: int = 0, numbers: Iterator[int] | None = None
    ) -> None:
        self._clock, self._sink = clock, sink
        self._numbers = itertools.count() if numbers is None else numbers
        self.epoch = epoch

    def __call__(self, kind: str, data: Mapping[str, Json]) -> None:
        now_ms = self._clock.now_ms()
        self._sink(Event(next(self._numbers), now_ms, self.epoch, kind, msgspec.to_builtins(dict(data))))

    def of(self, epoch: int) -> Log:
        """The same list, for events of another process."""
        return Log(self._clock, self._sink, epoch, self._numbers)


class Meter:
    """What the provider billed the agent of one trial, against the trial's limits, which are the same for every arm.

    Fed with the truth, so that a crash or a lost answer hides nothing. over: becomes the name of the limit reached.
    """

    def __init__(self, limits: Any) -> None:
        self._limits, self._tokens, self._turns = limits, 0, 0
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(self, because: str) -> None:
        """The trial is over, unless it was already for another reason."""
        if not self.over.done():
            self.over.set_result(because)

    def hear(self, kind: str, data: Mapping[str, Json]) -> None:
        metadata = data.get("metadata") or {}
        if kind in ("budget", "missing"):  # of the whole run; a cassette without the answer
            self.end("spend cap of the run" if kind == "budget" else "an answer is missing")
        if kind != "billed" or ("ref" in metadata and "delegation" not in metadata):
            return
        self._tokens += data["prompt_tokens"] + data["completion_tokens"]
        self._turns += 1
        if self._tokens > self._limits.tokens:
            self.end("token limit")
        elif self._turns > self._limits.turns:
            self.end("turn limit")


def assemble(
    *,
    parts: Parts,
    task: Task,
    world: World,
    store: SqliteStore,
    injector: Injector,
    note: Note,
    clock: Clock,
    life: Life,
    watch: Stopwatch = Stopwatch(),  # noqa: B008 (it has no state)
) -> Env:
    """Layers around injector around world, with the recorder outside: what one life of an orchestrator runs in."""
    numbers = itertools.count()
    contracts = {d.id: d.contract for d in (*task.delegations, *task.system.repairs.values())}
    woken = {d.id for d in task.system.repairs.values()}

    async def probe(call: EffectCall) -> Probe:
        declared = contracts[call.site.delegation].clause(call)
        return await world.probe(call, declared) if declared else Probe(count=None)

    # plain functions: a bound method would hand the arm the object behind it
    context = ArmContext(
        now_ms=lambda: clock.now_ms(),
        sleep_ms=watch.beyond(lambda ms: clock.sleep_ms(ms), broken_off=False),
        draw=lambda *name: rng.draw(task.seed, "arm", *name),
        note=lambda kind, data: note("note", {"note": kind, **data}),
        store=ArmStore(lambda: store.transaction(), lambda sql, params: store.query(sql, params)),
        probe=watch.beyond(probe),
        progress=lambda call_id: world.progress(call_id),
        contracts=contracts,
        epoch=life.before,
        system=task.system,
        worker=life.host,
    )
    env: Env

    async def attempt_once(attempt: Attempt) -> DelegationOutcome:
        try:
            outcome = await run_attempt(env, attempt)
            if attempt.delegation.id in woken:  # the plan does not say how these end
                note("delegation_end", {**_end_of(attempt, outcome), "woken": True})
            return outcome
        except Exception as error:  # what an arm raises was caught at its seam: this is a defect of ours
            raise HarnessBug(f"orchestrator failed in {attempt.delegation.id}: {error!r}") from error

    base = _innermost(injector.base(attempt_once), note, watch)
    try:
        layers = parts.arm.layers(context)
        note("onion", {"layers": [type(layer).__name__ for layer in layers]})
        composed = compose(layers, base)
    except ConfigError as error:  # of the one who runs it, not of the arm: nothing is measured then
        raise HarnessBug(f"arm {parts.arm.name!r} cannot be put together: {error}") from error
    except Exception as error:  # an arm that cannot be put together runs nothing
        note("arm_error", {"error": repr(error)})
        composed = compose((_Unmade(repr(error)),), base)
    crossings = _recorded(composed, note, injector, watch, frozenset(task.kept))
    world.bind(crossings.effect)
    env = Env(
        crossings=crossings,
        journal=Journal(store),
        workspaces=world,
        note=note,
        new_id=lambda: f"c{life.number}.{next(numbers)}",
    )
    return env


def _end_of(attempt: Attempt, outcome: DelegationOutcome) -> dict[str, Json]:
    told = {"status": outcome.status, "code": outcome.code, "verdict": outcome.verdict}
    return {"delegation": attempt.delegation.id, **told}


class _Unmade(PassThrough):
    """What stands for the layers of an arm that could not be made: its delegations fail."""

    def __init__(self, because: str) -> None:
        self._because = because

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        return DelegationOutcome(status="failed", code="arm-error", because=self._because)


def _innermost(base: Crossings, note: Note, watch: Stopwatch) -> Crossings:
    """The same crossings as functions that lead to nothing but themselves, where it is seen that an arm lets go of a
    call which is still under way: what it calls that, or whether it says so at all, is left to no arm."""

    def plain(cross: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def crossing(call: Any) -> Any:
            try:
                return await cross(call)
            except asyncio.CancelledError:
                note("abandoned", {"call_id": call.call_id})
                raise

        return watch.beyond(crossing)

    async def delegate(attempt: Attempt) -> DelegationOutcome:
        return await base.delegate(attempt)

    calls = {name: plain(getattr(base, name)) for name in Crossings.__struct_fields__ if name != "delegate"}
    return Crossings(delegate=delegate, **calls)


def _recorded(
    inner: Crossings, note: Note, injector: Injector, watch: Stopwatch, kept: frozenset[str] = frozenset()
) -> Crossings:
    """Note what the orchestrator asked and what it got; an exception inside an arm, or an answer of no known form, is
    the arm's own failure."""

    def seam(cross: Callable[[Any], Awaitable[Outcome]]) -> Callable[[Any], Awaitable[Outcome]]:
        async def crossing(call: Any) -> Outcome:
            note("call", _asked(call, kept))
            injector.asked(call)
            lap = watch.lap()
            try:
                outcome = _checked(call, await cross(call))
            except Exception as error:
                note("arm_error", {"call_id": call.call_id, "error": repr(error)})
                outcome = Err(code="arm-error", definite=False, detail=repr(error))
            taken = lap.end()
            injector.returned(call)
            note("outcome", {"call_id": call.call_id, **_got(call, outcome), **taken})
            return outcome

        return crossing

    async def delegate(attempt: Attempt) -> DelegationOutcome:
        try:
            outcome = await inner.delegate(attempt)
            if not isinstance(outcome, DelegationOutcome):
                raise TypeError(f"a layer ended a delegation with {type(outcome).__name__}")
            return outcome
        except Exception as error:
            note("arm_error", {"delegation": attempt.delegation.id, "error": repr(error)})
            return DelegationOutcome(status="failed", code="arm-error", because=repr(error))

    return Crossings(
        delegate=delegate,
        model=seam(inner.model),
        tool=seam(inner.tool),
        effect=seam(inner.effect),
        commit=seam(inner.commit),
    )


def _checked(call: Any, outcome: Any) -> Outcome:
    """The outcome, if it has the form that the orchestrator relies on; raises TypeError otherwise."""
    if not isinstance(outcome, Ok | Err | Refused):
        raise TypeError(f"a layer answered {type(outcome).__name__}")
    if isinstance(outcome, Ok) and isinstance(call, ModelCall):
        value = outcome.value
        calls = value.get("tool_calls") if isinstance(value, dict) else None
        if not isinstance(calls, list) or not {"id", "content"} <= set(value):
            raise TypeError("a layer answered a model call without id, content and tool_calls")
        if not all(isinstance(c, dict) and all(isinstance(c.get(k), str) for k in _CALL_KEYS) for c in calls):
            raise TypeError("a layer answered a model call with a tool call without id, name and arguments")
    if isinstance(outcome, Ok) and isinstance(call, ToolCall):
        key = _TOOL_KEYS.get(call.tool)
        if not isinstance(outcome.value, dict) or not (key is None or {key, "error"} & set(outcome.value)):
            raise TypeError(f"a layer answered {call.tool} without {key or 'an object'}")
    msgspec.json.encode(outcome)  # what cannot be written down cannot be told to an agent either
    return outcome


_CALL_KEYS = ("id", "name", "arguments")
_TOOL_KEYS = {"read": "digest", "write": "digest", "edit": "digest", "run_check": "passed"}


def _asked(call: Any, kept: frozenset[str] = frozenset()) -> dict[str, Json]:
    """A call for the trace. Conversations are left out, they can be made again from turns; long texts are cut, but for
    those of the files whose paths are `kept`."""
    data = {k: v for k, v in msgspec.to_builtins(call).items() if k not in ("type", "request")}
    kind = _KINDS[type(call)]
    if isinstance(call, ModelCall):
        data["model"] = str(call.request.get("model", ""))
    if isinstance(call, ToolCall):
        whole = call.args.get("path") in kept
        data["args"] = {k: v if whole else _cut(v) for k, v in call.args.items()}
    return {"call": kind, **data}


_KINDS: dict[type, str] = {ModelCall: "model", ToolCall: "tool", EffectCall: "effect", Commit: "commit"}


def _cut(value: Json) -> Json:
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return value[:SHOWN_CHARACTERS] + f"... ({len(value)} characters)"
    return value


def _got(call: Any, outcome: Outcome) -> dict[str, Json]:
    if isinstance(outcome, Ok):
        told = {"result": "ok", "verdict": outcome.verdict, "code": "", "definite": True, "receipt": outcome.receipt}
        answers = isinstance(call, ToolCall) and call.tool == "run_check" and "passed" in outcome.value
        return {**told, "passed": bool(outcome.value["passed"])} if answers else told
    if isinstance(outcome, Refused):
        because = {"because": outcome.because}
        return {
            "result": "refused",
            "verdict": outcome.verdict,
            "code": "",
            "definite": True,
            "receipt": None,
            **because,
        }
    error = {"code": outcome.code, "definite": outcome.definite}
    return {"result": "err", "verdict": outcome.verdict, **error, "receipt": None}


# --- the ends of a trial -----------------------------------------------------------------------------------------


def open_truth(tell: Note, faults: Sequence[Fault], spec: Spec, task: Task) -> None:
    """The first lines of the truth: a canary that must never cross a seam, the components that are defective, and the
    faults that are armed."""
    tell("canary", {"token": rng.token(spec.seed, "canary", spec.id)})
    if task.defective:
        tell("defective", {"components": list(task.defective)})
    for index, fault in enumerate(faults):
        where = {"class": fault.name, "variant": fault.variant, "strike": msgspec.to_builtins(fault.strike)}
        known = getattr(fault, "decided", None)  # a fault may also make up its mind on the way
        tell("fault", {"fault": index, "state": "armed", **where, **(shape(known) if known is not None else {})})


def finish(
    spec: Spec,
    trace: list[Event],
    truth: list[Event],
    status: str,
    because: str,
    ended_ms: float,
    **more: Any,
) -> TrialResult:
    """The record of a trial, with the states of its faults settled by evidence."""
    truth = [*truth, *_settled(truth, ended_ms)]
    states = [e.data["state"] for e in truth if e.kind == "fault"]
    exposure = {s: states.count(s) for s in ("armed", "fired", "observed", "expired")}
    record = TrialRecord(
        id=spec.id,
        pair=spec.pair,
        index=spec.index,
        workload=spec.workload,
        arm=spec.arm,
        world=spec.world,
        seed=spec.seed,
        variation=spec.variation,
        fault_class=spec.fault_class,
        variant="+".join(spec.variants),
        faults_scheduled=len(spec.variants),
        status=status,  # type: ignore[arg-type]
        because=because,
        exposure={"scheduled": len(spec.variants), **exposure},
        duration_ms=ended_ms,
        **more,
    )
    return TrialResult(record, trace, truth)


def _proves(proof: Event, fired: Event) -> bool:
    """Whether a piece of evidence is about this firing: not earlier, and of the same call or boundary."""
    if proof.at_ms < fired.at_ms:
        return False
    if "call_id" in proof.data:
        return bool(proof.data["call_id"] == fired.data["call_id"])
    boundary = "provider" if fired.data["name"] == "chat" else fired.data["name"]
    return bool(proof.data.get("boundary", boundary) == boundary)


def _settled(truth: Sequence[Event], ended_ms: float) -> list[Event]:
    """`observed` for each firing that somebody else saw, `expired` for each fault that never fired.

    Evidence of a death is an exit by signal, of anything else the suffering side's own word, at or after the firing;
    each piece of evidence proves one firing.
    """
    seq = max((e.seq for e in truth), default=0)
    used: set[int] = set()
    settled: list[Event] = []

    def add(data: dict[str, Json]) -> None:
        settled.append(Event(seq + 1 + len(settled), ended_ms, truth[-1].epoch, "fault", data))

    fired = {e.data["fault"]: e for e in truth if e.kind == "fault" and e.data["state"] == "fired"}
    for event in truth:
        if event.kind != "fault" or event.data["state"] != "armed":
            continue
        index = event.data["fault"]
        if index not in fired:
            add({"fault": index, "state": "expired"})
            continue
        kind = "exit" if fired[index].data["fate"] == "die" else "suffered"
        proofs = (e for e in truth if e.kind == kind and id(e) not in used and _proves(e, fired[index]))
        proof = next(proofs, None)
        if proof is not None:
            used.add(id(proof))
            add({"fault": index, "state": "observed", "evidence": {"kind": kind, **proof.data}})
    return settled
