"""Trials written by hand: both logs, event by event, for the tests of what is said about sealed trials."""

from __future__ import annotations

from harness.accounting import account
from harness.core.records import Event, Intent, SealedTrial, TrialRecord, Work
from harness.core.types import Json

GOOD = {"app.py": "0123abcd"}
TOKENS = 10  # of every completion
SPEC = ["d/SPEC.md", "s"]
FILE = "d/app.py"


class Logs:
    """Trace and truth of one trial. Time goes on by `tick_ms` with every event."""

    def __init__(self) -> None:
        self.trace: list[Event] = []
        self.truth: list[Event] = []
        self.epoch, self.attempt, self.tick_ms = 0, 1, 1.0
        self._n, self._now_ms = 0, 0.0

    def note(self, kind: str, **data: Json) -> None:
        self.trace.append(self._event(kind, data))

    def really(self, kind: str, **data: Json) -> None:
        self.truth.append(self._event(kind, data))

    def _event(self, kind: str, data: dict[str, Json]) -> Event:
        self._n += 1
        self._now_ms += self.tick_ms
        return Event(self._n, self._now_ms, self.epoch, kind, data)

    def trial(self, **record: Json) -> SealedTrial:
        fields = dict(id="t", pair="q", index=0, workload="toy", arm="naive", world="sim", seed=1, variation=3)
        fields |= dict(fault_class="x", variant="y", faults_scheduled=0, status="ended")
        return SealedTrial(record=TrialRecord(**{**fields, **record}), trace=tuple(self.trace), truth=tuple(self.truth))


class Toy:
    """An oracle whose effects say their keys aloud, in the field `names`."""

    def __init__(self, *intents: Intent) -> None:
        self._intents = intents

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        return self._intents

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        return tuple(effect.get("payload", effect)["names"])

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return files == GOOD


def want(key: str, required: int = 1, boundary: str = "transport", delegation: str = "d", phase: str = "p") -> Intent:
    return Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)


class Build(Logs):
    """Effects of the one delegation `d` in its one phase `p`."""

    def ask(
        self,
        *names: str,
        boundary: str = "transport",
        crossed: int = 1,
        commits: int = 1,
        said: str = "ok",
        receipt: str | None = "",
    ) -> None:
        """One effect call: it comes out of the arm `crossed` times and happens `commits` times."""
        call_id = f"c{self._n}"
        where = {"delegation": "d", "phase": "p"}
        call = {"call": "effect", "call_id": call_id, "site": {**where, "seam": "S2", "name": boundary}}
        call |= {"attempt": self.attempt, "turn": 0, "index": 0, "ordinal": 0, "cause": "t", "origin": "check"}
        payload = {"names": list(names)}
        self.note("call", **call, boundary=boundary, operation="put", target="x", payload=payload)
        for _ in range(crossed):
            self.really("crossed", call_id=call_id, boundary=boundary, attempt=self.attempt, **where)
        held = None
        for _ in range(commits):
            held = f"r{self._n}"
            self.really("effect", boundary=boundary, names=list(names), receipt=held)
        if said:
            verdict = {"ok": "executed", "refused": "fenced"}.get(said)
            told = receipt if receipt != "" else (held if said == "ok" else None)
            self.note("outcome", call_id=call_id, result=said, verdict=verdict, code="", definite=True, receipt=told)

    def checkpoint(self, files: dict[str, str] | None = None, delegation: str = "d") -> None:
        held = GOOD if files is None else files
        self.note("checkpoint", delegation=delegation, attempt=self.attempt, phase="p", files=held)

    def seal(self, status: str = "done", **record: Json) -> SealedTrial:
        self.checkpoint()
        self.note("delegation_end", delegation="d", status=status, code="", verdict=None)
        return self.trial(**record)


class Story(Logs):
    """The work of delegations: their turns, what these cost, and what became of the processes they ran in."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[tuple, int] = {}
        self.note("epoch", epoch=0)

    def begin(self, attempt: int = 1, d: str = "d") -> None:
        self.attempt = attempt
        self.note("attempt", delegation=d, attempt=attempt, resumed=False)

    def ask(self, d: str = "d", phase: str = "build", bill: bool = True) -> str:
        """A model call that is billed; the name of its completion, which is also that of the call."""
        key = d, phase, self.attempt, self.epoch
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        completion = f"{d}-{phase}-{self.attempt}.{self.epoch}.{turn}"
        site = {"delegation": d, "phase": phase, "seam": "S1", "name": "chat"}
        self.note("call", call="model", call_id=completion, site=site, attempt=self.attempt, turn=turn)
        if bill:
            self.bill(completion, d, phase)
        return completion

    def bill(self, completion: str, d: str = "d", phase: str = "build", **metadata: Json) -> None:
        about = {"delegation": d, "phase": phase, **metadata}
        used = {"prompt_tokens": TOKENS - 3, "completion_tokens": 3}
        self.really("billed", completion=completion, site=f"{d}/{phase}", **used, nth=0, metadata=about)

    def tool(self, completion: str, d: str = "d", phase: str = "build") -> str:
        """A tool call of the turn that is on; its id."""
        turn = self._turns[d, phase, self.attempt, self.epoch]
        site = {"delegation": d, "phase": phase, "seam": "S2", "name": "run_check"}
        data = {"call": "tool", "call_id": f"{completion}-tool", "site": site, "attempt": self.attempt, "turn": turn}
        self.note("call", **data, index=0, tool="run_check", args={})
        return data["call_id"]

    def turn(
        self,
        reads: list | None = None,
        writes: list | None = None,
        checks: list | None = None,
        done: bool = False,
        d: str = "d",
        phase: str = "build",
        replay: str | None = None,
        asked: bool = False,
    ) -> str:
        """A turn from its model call to its end; the name of its completion. replay: it was billed before; asked:
        the call that it belongs to was told before, too."""
        completion = replay or self.ask(d, phase)
        key = d, phase, self.attempt, self.epoch
        if replay and not asked:
            self._turns[key] = self._turns.get(key, -1) + 1
        self.note(
            "turn",
            delegation=d,
            attempt=self.attempt,
            phase=phase,
            turn=self._turns[key],
            completion=completion,
            replayed=bool(replay),
            reads=reads or [],
            writes=writes or [],
            checks=checks or [],
            done=done,
        )
        return completion

    def fire(self, name: str, call_id: str | None, d: str = "d", fate: str = "fail") -> None:
        data = {"class": name, "variant": "v", "fate": fate, "call_id": call_id, "delegation": d, "phase": "build"}
        self.really("fault", fault=0, state="fired", **data)

    def die(self, call_id: str | None, d: str = "d") -> None:
        """SIGKILL at this call, and a new process on the same durable state."""
        self.fire("staging_crash", call_id, d, "die")
        self.really("exit", epoch=self.epoch, signal="SIGKILL")
        self.epoch += 1
        self.note("epoch", epoch=self.epoch)

    def checkpoint(self, files: dict[str, str] | None = None, d: str = "d", phase: str = "build") -> None:
        self.note("checkpoint", delegation=d, attempt=self.attempt, phase=phase, files=files or {})

    def fail(self, status: str = "failed", d: str = "d") -> None:
        self.note("attempt_end", delegation=d, attempt=self.attempt, status=status, code="x", because="", verdict=None)

    def end(self, status: str = "done", d: str = "d") -> None:
        self.note("delegation_end", delegation=d, status=status, code="", verdict=None)

    def work(self) -> Work:
        return account(self.trial(faults_scheduled=1))


def build(s: Story, replays: list[str] | None = None, until: int = 4) -> list[str]:
    """A component's session: read the specification, write, repair, done. With a journal, answers are replayed."""
    known = iter(replays or [])
    turns: list[dict] = [
        dict(reads=[SPEC]),
        dict(writes=[[FILE, "v1", "write"]], checks=[["unit", False]]),
        dict(writes=[[FILE, "v2", "edit"]], checks=[["unit", True]]),
        dict(done=True),
    ]
    return [s.turn(**t, replay=next(known, None)) for t in turns[:until]]


def accept(s: Story, digest: str = "v2") -> None:
    s.checkpoint({FILE: digest})
    s.end()


def parts(w: Work) -> tuple[int, int, int, int]:
    """live, dead ends, charged, spontaneous, in turns."""
    assert w.billed == w.live + w.dead_end + w.charged + w.spontaneous
    assert w.destroyed == w.turns_destroyed * TOKENS >= w.destroyed_lenient
    return w.live // TOKENS, w.dead_end // TOKENS, w.charged // TOKENS, w.spontaneous // TOKENS
