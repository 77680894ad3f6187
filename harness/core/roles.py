"""What an arm, a fault and a workload are made of, and the little that each of them is handed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, Protocol

from msgspec import Struct

from harness.core.errors import ConfigError
from harness.core.seams import Layer
from harness.core.types import (
    Call,
    CheckSpec,
    Delegation,
    EffectCall,
    EffectContract,
    HookSpec,
    Json,
    Probe,
    Seam,
    System,
)


class Store(Protocol):
    """Durable state that survives SIGKILL at any instant: one SQLite database (WAL) per trial, shared by the
    orchestrator and its arm so that one transaction can serve both."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """BEGIN IMMEDIATE ... COMMIT; rolled back when the block raises."""
        ...

    def query(self, sql: str, params: tuple = ()) -> list[tuple]: ...


class ArmContext(Struct, frozen=True, kw_only=True):
    """Everything an arm may touch. There is no reader of truth, no world, no fault list and no seed.

    now_ms, sleep_ms: nominal time. draw: uniform in [0,1) by name, for jitter. note: write-only remark for the trace.
    store: durable. probe: ask a boundary's public read interface whether an effect is there. progress: units of
    observable progress (output bytes, effects) of a running tool call so far. contracts: the declarations, by
    delegation. epoch: how many times the orchestrator of this host was started before. system: what the plan declares
    of the components together, with the repair delegations that a layer may wake through `on_delegate`'s `next`.
    worker: the host of this orchestrator, the same after a restart; "" where there is only one.
    """

    now_ms: Callable[[], float]
    sleep_ms: Callable[[float], Awaitable[None]]
    draw: Callable[..., float]
    note: Callable[[str, Mapping[str, Json]], None]
    store: Store
    probe: Callable[[EffectCall], Awaitable[Probe]]
    progress: Callable[[str], int]
    contracts: Mapping[str, EffectContract]
    epoch: int
    system: System = System()
    worker: str = ""


class Arm(Struct, frozen=True, kw_only=True):
    """An onion of layers around the seams. layers: outermost first. contained: attempts work on a copy and only
    commits reach the accepted files. boot_check: raises ConfigError when the arm may not start."""

    name: str
    about: str
    layers: Callable[[ArmContext], tuple[Layer, ...]]
    contained: bool = False
    boot_check: Callable[[], None] | None = None
    parameters: dict[str, Json] = {}
    variation_stream: int = 0  # an A/A replica draws the agent's composition from another stream


# --- faults -------------------------------------------------------------------------------------------------------


class Pass(Struct, frozen=True, tag="pass"):
    """Nothing happens."""


class Delay(Struct, frozen=True, tag="delay"):
    """The call goes through, this much later."""

    ms: float


class Fail(Struct, frozen=True, tag="fail"):
    """The other side answers with an error that it can really produce, e.g. `http-429`."""

    code: str


class Hang(Struct, frozen=True, tag="hang"):
    """The check's process stops. ms None: for ever; else it is paced: it goes on, with progress, for this much longer.
    after: its work is done, and only the end never comes."""

    ms: float | None = None
    after: bool = False


class Die(Struct, frozen=True, tag="die"):
    """The orchestrator process gets this signal. at_record: not here but at the next durable write, so that the
    outcome was handed back and never recorded."""

    signal: Literal["SIGKILL", "SIGTERM"] = "SIGKILL"
    at_record: bool = False


class Cut(Struct, frozen=True, tag="cut"):
    """The connection to the call's boundary suffers, for `ms` nominal milliseconds from here on.

    how: reset (RST) · timeout (held, then closed after hold_ms) · blackhole (held for the whole time) · limit (closed
    after n bytes) · slow. stream: upstream harms the request, downstream the answer.
    """

    how: Literal["reset", "timeout", "blackhole", "limit", "slow"]
    ms: float
    stream: Literal["upstream", "downstream"] = "downstream"
    bytes: int = 0
    hold_ms: float = 0


class Alter(Struct, frozen=True, tag="alter"):
    """The check's answer is another one: `flip` turns its result, `raise` makes the monitor itself fail."""

    how: Literal["flip", "raise"]


Fate = Pass | Delay | Fail | Hang | Die | Cut | Alter


class Strike(Struct, frozen=True, kw_only=True):
    """Where a fault strikes: a logical site, before or after the call took effect, at the n-th visit in this trial.

    `delegation`, `phase`, `name` may be "*"; `check` narrows `run_check` to one check. Visits are counted durably and
    over all attempts. epoch_min: only in an orchestrator process whose host was started that many times before.
    """

    seam: Seam
    name: str
    delegation: str = "*"
    phase: str = "*"
    check: str = ""
    turn_min: int = 0
    moment: Literal["before", "after"] = "before"
    visit: int = 1
    epoch_min: int = 0

    def matches(self, call: Call) -> bool:
        site = call.site
        if site.seam is not self.seam or self.name not in ("*", site.name):
            return False
        if self.delegation not in ("*", site.delegation) or self.phase not in ("*", site.phase):
            return False
        if self.turn_min and getattr(call, "turn", 0) < self.turn_min:
            return False
        if self.check:
            named = call.args.get("check") if hasattr(call, "args") else getattr(call, "origin", None)
            return named == self.check
        return True


class FaultView(Struct, frozen=True):
    """What a fault may look at when it decides. visit: crossings of its own strike so far, this one included."""

    moment: Literal["before", "after"]
    visit: int
    fired: int
    epoch: int


class Fault(Protocol):
    """One scheduled fault of a trial: a value whose `fate` is pure. `name`, `variant` are for reports."""

    @property
    def name(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def strike(self) -> Strike: ...

    def fate(self, call: Call, view: FaultView) -> Fate: ...


class SiteOffer(Struct, frozen=True, kw_only=True):
    """A site of a workload that every arm visits when nothing fails, offered to faults. `tags` say what it is good
    for: `commit`, `effect`, `model`, `check`, plus a boundary. visits: how often it is visited; for a check, the number
    of the one visit that is offered, since each run of a check is an offer of its own."""

    delegation: str
    phase: str
    seam: Seam
    name: str
    check: str = ""
    visits: int = 1
    tags: tuple[str, ...] = ()

    def strike(self, visit: int, moment: Literal["before", "after"] = "before") -> Strike:
        """A strike at this site, at the given visit."""
        return Strike(
            seam=self.seam,
            name=self.name,
            delegation=self.delegation,
            phase=self.phase,
            check=self.check,
            moment=moment,
            visit=visit,
        )


class FaultClass(Protocol):
    """How a class of faults makes the faults of one trial. `variants` are the names a schedule may give, and those that
    are drawn from when it gives none. A class may have a tuple `further` beside it, of variants that are struck only
    where a schedule names them, since few workloads have a place for them."""

    name: ClassVar[str]
    code: ClassVar[str]  # X1 ... X6
    about: ClassVar[str]
    variants: ClassVar[tuple[str, ...]]

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Callable[[str, int], int]) -> Fault:
        """The `index`-th fault of a trial. `pick(name, n)` draws an integer in [0, n)."""
        ...


HOST = re.compile(r"[a-z0-9][a-z0-9_-]*")
"""Names of hosts: they become parts of file names and tags."""


# --- workloads ----------------------------------------------------------------------------------------------------


class Task(Struct, frozen=True, kw_only=True):
    """One instance of a workload, made from a seed: what is asked, and what the outside looks like.

    files: the initial repository. checks, hooks: what a delegation may run. tables: DDL per service. packages: what
    the index offers. sites: where faults may strike. system: topology and repair delegations. defective: components
    with a planted defect that the acceptance sees; only the truth is told. kept: paths whose every write stands in the
    trace in full. hosts: the orchestrators that run the plan side by side, each with the ids of the delegations that
    are its own, on one durable store; left out, there is one, without a name. side_by_side: how many delegations an
    orchestrator runs at a time, as every one that is really used has a limit. The intents (ground truth) are not here
    but in the oracle.
    """

    workload: str
    seed: int
    variation: int
    delegations: tuple[Delegation, ...]
    files: dict[str, str]
    checks: tuple[CheckSpec, ...]
    hooks: tuple[HookSpec, ...]
    tables: dict[str, tuple[str, ...]]
    packages: tuple[str, ...]
    sites: tuple[SiteOffer, ...]
    streams: tuple[str, ...] = ()
    system: System = System()
    defective: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = {}
    side_by_side: int = 32

    def check(self, name: str) -> CheckSpec | None:
        return next((c for c in self.checks if c.name == name), None)

    def delegation(self, id: str) -> Delegation:
        """The delegation of this id, of the plan or woken for a repair. Raises KeyError when there is none."""
        for one in (*self.delegations, *self.system.repairs.values()):
            if one.id == id:
                return one
        raise KeyError(id)

    def shares(self) -> dict[str, frozenset[str]]:
        """The ids of each orchestrator's delegations of the plan, by the name of its host. Raises ConfigError unless
        every delegation is somebody's, and nobody else's."""
        planned = [d.id for d in self.delegations]
        if self.side_by_side < 1:
            where = f"workload {self.workload}"
            raise ConfigError(f"side_by_side is {self.side_by_side}", where=where, allowed="a whole number from 1")
        if not self.hosts:
            return {"": frozenset(planned)}
        placed = [id for ids in self.hosts.values() for id in ids]
        for host in self.hosts:
            if not HOST.fullmatch(host):
                where = f"workload {self.workload}"
                raise ConfigError(f"host {host!r}", where=where, allowed="names of a-z, 0-9, _ and -")
        if sorted(placed) != sorted(planned):
            problem = f"its hosts run {', '.join(sorted(placed))}"
            raise ConfigError(
                problem, where=f"workload {self.workload}", allowed=f"each once: {', '.join(sorted(planned))}"
            )
        return {host: frozenset(ids) for host, ids in self.hosts.items()}


class Completion(Struct, frozen=True, kw_only=True):
    """What the scripted model answers: text and tool calls (name, arguments as JSON text). drifting: the script plays a
    loop that leads nowhere here, which the truth is told and nobody else."""

    content: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    drifting: bool = False


class Manner(Struct, frozen=True, kw_only=True):
    """How the process of a check behaves in one run of it, whatever the files say.

    failing: tests that fail before anything was done to the outside. before_ms, after_ms: nominal time that it takes
    before and after its steps, None until it is killed. paced: with signs of life meanwhile.
    """

    failing: tuple[str, ...] = ()
    before_ms: float | None = 0.0
    after_ms: float | None = 0.0
    paced: bool = False


class Workload(Protocol):
    """A family of tasks. `task` is pure; `reply` plays the model; `unit_failures` says which tests of a check fail on
    given files (the sim world's stand-in for running them).

    A workload may also have `steps(check, files, steps) -> list`: what the processes of a check really do with the
    steps of its scenario, given these files (left out: just those steps). Beside effects and reads there are two more
    kinds, `{"do": "checkpoint", "entry": [correlation, stage, node]}` and `{"do": "blocked"}`, which fails; a step with
    a `test` fails that test, and only its later steps are left out then.

    `prepare()`, where it is there, is called once before the first trial of a run, in both worlds; it may be slow and
    use a network, and raises ConfigError. Everything else must then do without.

    Two more may be there, each the sim world's stand-in for a real process. `manner(check, files, run) -> Manner`: how
    the check behaves in its `run`-th run, counted from 1 for each delegation and durably; a real check is told by
    RUN_NUMBER. `leaves(hook, path, files) -> dict`: the files, path to text, that a hook on `path` leaves behind.
    """

    name: str
    about: str
    intended: dict[str, int]  # intended effects by boundary

    def task(self, seed: int, variation: int, mode: str) -> Task: ...
    def reply(self, task: Task, request: dict[str, Any], nth: int, stream: int) -> Completion: ...
    def unit_failures(self, check: CheckSpec, files: Mapping[str, str]) -> tuple[str, ...]: ...
