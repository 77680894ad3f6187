"""The reading side: what a sealed trial is made of, and what is said of it afterwards.

Closed to arms, faults, the orchestrator and the worlds, which are only ever handed a writer.

Event kinds of the **trace** (what could be seen from inside), with their data:
  epoch        {epoch, host?, recorder?, pid?}        an orchestrator process started on the durable state; epoch: its
               number, from 0, over all hosts; host: where there are several, the one that it runs on; recorder:
               which version of the recorder wrote this (`RECORDER`)
  onion        {layers}                               the arm's layers, outermost first, by the names of their classes
  attempt      {delegation, attempt, resumed, depth}
  attempt_end  {delegation, attempt, status, code, because, verdict}
  phase        {delegation, attempt, phase}           started
  checkpoint   {delegation, attempt, phase, files}    durable: files = {path: digest} accepted so far
  call         {call, call_id, site, ...}             what the orchestrator asked (outside the arm); of a model call the
               `model` that it named
  outcome      {call_id, result, verdict, code, passed?, arm_us?, ...}   what it got; passed: the answer of a check;
               arm_us: real microseconds that the arm's layers took of it (live world only, see `harness.stopwatch`)
  abandoned    {call_id}                              the arm let go of a call that was still under way beyond it: seen
               where calls leave the arm, whatever the arm says of it
  limit        {}                                     the trial's time or spending limit was reached: what is given up
               from here on is no arm's doing
  turn         {delegation, attempt, phase, turn, completion, replayed, reads, writes, checks, done}   one per turn
               reads: [[path, digest]], writes: [[path, digest, write|edit]], checks: [[check, passed]]
  delegation_end {delegation, status, code, verdict, woken?}   woken: a repair, which no plan runs by itself
  note         {note, ...}                            a remark of the arm
  arm_error    {call_id|delegation, error}            an exception inside an arm: the arm's own failure
Event kinds of the **truth** (what really happened), written by the world and by inject:
  fault        {fault, class, variant, state, fate?, how?, ms?, ...}    state: armed, fired, observed, expired; fate,
               how and ms: what it does to its call, for how long in nominal time (armed: where it is known in advance)
  crossed      {call_id, boundary?}                   an effect call came out of the arm towards the world
  effect       {boundary, ..., receipt}               durable at the sink
  defective    {components}                           those with a planted defect that the acceptance sees, if any
  checked      {check, delegation, call_id, passed}   a run of a check came to an end; passed: what it came to itself,
               before a fault turned its answer or broke its monitor
  billed       {completion, site, model, prompt_tokens, completion_tokens, nth, drifting?, usage?}   model: as it was
               requested; drifting: part of a scripted loop; usage: tokens as a real model's endpoint billed them
  delivered/undelivered {completion?, boundary?}      an answer that arrived or did not; completion: of the provider
  exit         {epoch, signal|code}                   seen by whoever waited for the process
  suffered     {boundary|check, what, ...}            evidence from the side that was harmed
  tampered     {call_id, delegation}                  a call came out of an arm with another place than it was made at
  rejected     {status}                               an answer that the provider refused
  declined     {status, site}                         an answer that a real model's endpoint refused by itself
  budget       {cap}                                  the spend cap of the whole run forbade a request to it
  missing      {error}                                nobody answers: not on the cassette, or the endpoint is broken
  misreported  {completion, prompt_tokens, completion_tokens}   usage that the provider told and did not bill
  partial      {boundary, ..., bytes, of_bytes}       a file of the registry of which only so much went out
  broken       {error, site?}                         a service of ours failed: the trial is invalid
  canary       {token}
  stored       {tables, tenants}                      what the arm's tables in the durable store held at the end of the
               trial: {table: [rows, bytes]} and {tenant: bytes} (see `harness.orchestrator.store`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from harness.core.types import Json


class Event(Struct, frozen=True, array_like=True):
    """One line of a log. at_ms: nominal time since the trial began."""

    seq: int
    at_ms: float
    epoch: int
    kind: str
    data: dict[str, Json]


class TrialRecord(Struct, frozen=True, kw_only=True):
    """A line of `trials.jsonl`."""

    id: str
    pair: str
    index: int  # pair number in registered order
    workload: str
    arm: str
    world: str
    seed: int
    variation: int
    fault_class: str
    variant: str
    faults_scheduled: int
    status: Literal["ended", "stuck", "invalid"]
    because: str = ""
    exposure: dict[str, int] = {}
    duration_ms: float = 0.0
    real_s: float = 0.0
    lag_ms: float = 0.0
    tries: int = 1


class SealedTrial(Struct, frozen=True, kw_only=True):
    """A trial that can be judged: its record and both logs, in order."""

    record: TrialRecord
    trace: tuple[Event, ...]
    truth: tuple[Event, ...]


class Intent(Struct, frozen=True, kw_only=True):
    """Ground truth of one natural key: an effect that must happen `required` times."""

    boundary: str
    key: str
    required: int
    delegation: str
    phase: str


class Held(Struct, frozen=True, array_like=True):
    """A durable effect behind a finding: its position in the truth, the call that most likely caused it ("" where no
    crossing is known that did), and whether that call's attempt was superseded."""

    position: int
    call_id: str = ""
    superseded: bool = False


class Recognition(Struct, frozen=True, kw_only=True):
    """How well an arm told repetitions from new effects at one boundary of one trial (`harness.recognition`).

    intents: intended effects, each repetition that is wanted counted by itself. merged: pairs of them that were taken
    for one. regenerated: effects asked for again when the boundary already held all that was wanted of them; missed:
    those of them that were executed again.
    """

    intents: int = 0
    merged: int = 0
    regenerated: int = 0
    missed: int = 0

    @property
    def pairs(self) -> int:
        """Pairs of distinct intended effects, which could be taken for each other."""
        return self.intents * (self.intents - 1) // 2


class Finding(Struct, frozen=True, kw_only=True):
    """What the oracle says about one natural key of one trial.

    observed: durable effects at the sink. status: exactly_once, duplicate, never_attempted, wrongly_merged,
    over_suppressed_silent, false_reject, lost_in_flight, phantom. held: the durable effects themselves, in order.
    """

    boundary: str
    key: str
    required: int
    observed: int
    duplicated: int  # intended effects committed more often than required, at most `required`
    lost: int
    stale: int = 0  # duplicates that came from an attempt which was superseded
    status: str = "exactly_once"
    delegation: str = ""
    held: tuple[Held, ...] = ()


TAKEN_FOR_REPETITIONS = ("over_suppressed_silent", "wrongly_merged")
"""Statuses of effects that are lost because the arm took them for one that was there already."""


class Work(Struct, frozen=True, kw_only=True):
    """Work accounting of one trial, in provider-billed tokens. destroyed = charged + spontaneous."""

    billed: int = 0
    live: int = 0
    dead_end: int = 0
    charged: int = 0  # discarded by an event that descends from a fault
    spontaneous: int = 0  # discarded by the policy without a fault
    destroyed_lenient: int = 0
    turns_destroyed: int = 0
    writes_destroyed: int = 0
    direct: int = 0
    timed_out_direct: int | None = None  # of turns killed by the clock (`harness.accounting.killed`); None: not told
    timed_out_reaction: int | None = None

    @property
    def destroyed(self) -> int:
        return self.charged + self.spontaneous


class Hop(Struct, frozen=True, kw_only=True):
    """A way on which a delegation is handed a brief and hands up a result. returns: path of the result. parent: who
    consumes it; it has done so when it writes `consumed_with`, and says in the file `repairs`, {"repaired": [...]},
    what it had to make good. verifier: the check that looks at the result first, "" for none.
    """

    delegation: str
    parent: str
    returns: str
    consumed_with: str
    repairs: str = ""
    verifier: str = ""


class HopAttempt(Struct, frozen=True, kw_only=True):
    """One try of a hop, from the dispatch to what became of its return.

    schema_valid, brief_satisfied: nested, see `failures`, which name what is wrong. usable_downstream: whether the
    parent could write from it, None as long as nobody tried. flagged: whether the verifier complained, None where none
    looked. states: in order, of `HOP_STATES`.
    """

    hop: str
    number: int
    schema_valid: bool
    brief_satisfied: bool
    usable_downstream: bool | None = None
    failures: tuple[str, ...] = ()
    flagged: bool | None = None
    states: tuple[str, ...] = ()


HOP_STATES = ("dispatched", "returned", "invalid", "satisfied", "usable", "repaired", "retried", "abandoned")
"""What an attempt of a hop goes through. Returned: something was handed up; invalid or satisfied: what the brief says
of it; usable or repaired: what the parent says of it; retried: there is a later attempt; abandoned: there is none, and
the delegation ended otherwise than well."""


class ScoredTrial(Struct, frozen=True, kw_only=True):
    """A trial with the oracle's findings: all that a metric may look at."""

    trial: SealedTrial
    findings: tuple[Finding, ...]
    work: Work
    success: bool  # every delegation done and the accepted state is the wanted one
    verdicts: dict[str, int]
    exposed: bool
    clean: dict[str, bool] = {}  # by delegation of the plan: it ended done, and no effect of it was lost or duplicated
    violations: dict[str, int] = {}  # by trace specification: how often the trace broke it
    recognition: dict[str, Recognition] = {}  # by boundary; empty where nobody counted
    budget_tokens: int = 0  # the registered budget of a trial; 0 where none is registered
    hops: tuple[HopAttempt, ...] = ()  # in the order of the plan's hops; none where the workload has no hops
    hops_planned: int = 0


RECORDER = 2
"""Version of what the harness records. 2: `abandoned`, `limit`, `stored`, and the fate of faults."""

ABANDONED_SINCE = 2
"""Version from which on the recorder sees what an arm lets go of."""


def hosts(trace: Sequence[Event]) -> dict[int, str]:
    """The host of each orchestrator process, by its number; "" where there was only one."""
    return {event.epoch: event.data.get("host", "") for event in trace if event.kind == "epoch"}


def recorder(trace: Sequence[Event]) -> int:
    """Version of the recorder that wrote a trace; 1 where it does not say."""
    return int(next((event.data.get("recorder", 1) for event in trace if event.kind == "epoch"), 1))


class NotApplicable(Struct, frozen=True):
    """A metric that has no value here, and why. Never a NaN, never a 0.0 that means "could not tell"."""

    because: str


class Metric(Struct, frozen=True, kw_only=True):
    """A number of one trial: definition, unit, direction, source."""

    name: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    about: str
    source: str
    of: Callable[[ScoredTrial], float | NotApplicable]


class Oracle(Protocol):
    """Judge of a workload; `harness.score` is its only reader.

    intents: what must happen, pure in the task's seed. natural_keys: the keys that an effect carries (several for a
    batch, none when it carries no known one), read from the truth's `effect` data or from an effect call's fields
    {boundary, operation, target, payload}. accepted: whether the accepted files ({path: text digest}) are wanted.
    proofs: checks that must really have been green at least once for a trial to be a success; an oracle may leave the
    attribute out, which means none.

    Where the accepted files do not show what was handed out, an oracle also has kept(seed, variation, effects): whether
    what the sinks hold in the end, the truth's `effect` data in order, is wanted.

    Where results are handed up, an oracle also has hops(seed, variation): the hops of the plan; and
    return_failures(seed, hop, text): what is wrong with a return under the brief that the hop was given, each beginning
    with what is broken, `schema:` for what does not even have the form.
    """

    proofs: tuple[str, ...]

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]: ...
    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]: ...
    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool: ...
