"""The vocabulary that every part of the harness shares: delegations, calls, outcomes, verdicts.

One frozen shape per word, so that an orchestrator, an arm, a fault and a world can talk about the same
crossing without knowing each other. Times are nominal milliseconds (see `harness.core.clock`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

Json = Any  # a JSON value: None, bool, int, float, str, list or dict with string keys

TOOLS = ("read", "list", "grep", "write", "edit", "run_check", "done")
"""The closed tool surface of a delegation's agent: there is no shell."""

PHASES = (
    "test_design",
    "test_preflight",
    "red_validation",
    "implementation",
    "local_verification",
    "oracle_qualification",
    "acceptance",
)
"""Lifecycle of a component, in order; a delegation declares which of them it goes through."""

BOUNDARIES = ("transport", "database", "registry", "provider", "repository", "hook")
"""Where effects escape a delegation. The primary rate is over all but `hook`."""


class Verdict(StrEnum):
    """What an arm tells the orchestrator about a crossing; every value can be counted by a user, none folds into
    another. Findings of the oracle are something else, and arms never see one."""

    EXECUTED = "executed"
    SUPPRESSED = "suppressed-as-duplicate"
    RECONCILED = "reconciled"
    STALLED = "refused-as-stalled"
    EXHAUSTED = "exhausted-budget"
    REJECTED = "rejected-by-gate"
    AWAITING_WAIVER = "awaiting-waiver"
    QUARANTINED = "quarantined"
    ABSTAINED = "abstained"
    ROUTED = "routed"
    FENCED = "fenced"
    TIMED_OUT = "timed-out"
    EJECTED = "ejected"


class Seam(StrEnum):
    """The three seams of the paper: S1 model call, S2 tool invocation with its effects, S3 commit."""

    MODEL = "S1"
    TOOL = "S2"
    COMMIT = "S3"


class Site(Struct, frozen=True, kw_only=True):
    """A logical address of a crossing, equal in every arm: where in the plan, never when on the clock.

    `name` is `chat` at S1, the tool name or the boundary at S2, `stage` or `publish` at S3.
    """

    delegation: str
    phase: str
    seam: Seam
    name: str


class DeclaredEffect(Struct, frozen=True, kw_only=True):
    """One clause of an effect contract: an effect of this kind may leave the delegation.

    key: dotted payload paths that carry the business identity (what a probe asks a boundary for).
    volatile: dotted payload paths that differ between two spellings of the same effect. A contract is written by a
    person and may miss some. content: the caller needs what the boundary answers, so that knowing that the effect is
    there is not enough.
    """

    boundary: str
    operation: str
    target: str
    key: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    content: bool = False


class Poll(Struct, frozen=True, kw_only=True):
    """A declared wait: identical calls of `tool` are no loop while it lasts.

    until: the awaited answer, "" when any change is. deadline_ms: how long after the first answer it may last.
    """

    tool: str
    until: str = ""
    interval_ms: float = 0.0
    deadline_ms: float = 600_000.0


class EffectContract(Struct, frozen=True, kw_only=True):
    """The declaration of a delegation: what it may write, run and cause, and how its work is told from a mistake.

    writable: globs. packages: names that may be fetched, None when the declaration does not say. polls: declared waits.
    slots: names of the effects that are wanted, one each, where their wording cannot be known. scope: what a result
    handed up must say that it is about. denied: operations that no command may run. handoffs: who may hand on to whom.
    tool_limit_ms: a tool that answers later than this was ended by somebody else. mode: whether the test-driven rungs
    are gone through. terms: further terms by name, each read by one gate and by nobody else.
    """

    writable: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    effects: tuple[DeclaredEffect, ...] = ()
    packages: tuple[str, ...] | None = None
    polls: tuple[Poll, ...] = ()
    slots: tuple[str, ...] = ()
    scope: dict[str, Json] = {}
    denied: tuple[str, ...] = ()
    handoffs: dict[str, tuple[str, ...]] = {}
    tool_limit_ms: float | None = None
    mode: Literal["tdd", "direct"] = "tdd"
    terms: dict[str, Json] = {}

    def clause(self, call: EffectCall) -> DeclaredEffect | None:
        """The first clause that covers this effect, if any."""
        for effect in self.effects:
            same = (effect.boundary, effect.operation) == (call.boundary, call.operation)
            if same and effect.target in ("*", call.target):
                return effect
        return None


class Delegation(Struct, frozen=True, kw_only=True):
    """The unit that carries a declaration, holds a budget, commits effects, and is retried or resumed.

    needs: delegations that must have ended well before this one starts. depth: 1 for a child of the run.
    """

    id: str
    tenant: str
    goal: str
    phases: tuple[str, ...]
    contract: EffectContract
    parent: str | None = None
    needs: tuple[str, ...] = ()
    component: str = ""
    depth: int = 1
    budget_tokens: int = 60_000
    turns_max: int = 24


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a delegation, as handed to `on_delegate`.

    number: 1-based; a layer that retries hands on a higher one. resumed: the orchestrator died in this attempt and
    re-enters it. keep_workspace: continue on the interrupted attempt's files instead of the accepted ones (asked for
    by layers that replay). draft: start from the files of that earlier attempt, which failed, and not from the accepted
    ones. again: the delegation had ended well and is woken once more, so that its phases are gone through anew. notes:
    what earlier attempts failed with, shown to the agent.
    """

    delegation: Delegation
    number: int = 1
    resumed: bool = False
    keep_workspace: bool = False
    draft: int | None = None
    again: bool = False
    notes: tuple[str, ...] = ()


class Node(Struct, frozen=True, kw_only=True):
    """A place that a failure can be at: scoped by its component, so that two databases of one shape are two nodes."""

    component: str
    kind: Literal["route", "command", "event", "subscriber", "state"]
    name: str


class Edge(Struct, frozen=True, kw_only=True):
    """A declared way from one node to the next. evidence: how well it is known, from a declaration, a static reading
    of the code, or an observed run."""

    source: Node
    target: Node
    evidence: Literal["declared", "static", "observed"] = "declared"


class System(Struct, frozen=True, kw_only=True):
    """What the plan declares of the system that its components make up together.

    repairs: the delegation that may be woken to mend a component, by component; none of them runs by itself. coverage:
    the components that a check's scenario goes through, by check. edges: the topology.
    """

    repairs: dict[str, Delegation] = {}
    coverage: dict[str, tuple[str, ...]] = {}
    edges: tuple[Edge, ...] = ()


class ModelCall(Struct, frozen=True, kw_only=True, tag="model"):
    """S1: one chat completion. `request` is the OpenAI-shaped body; `turn` counts from 0 within the phase."""

    site: Site
    call_id: str
    attempt: int
    turn: int
    request: dict[str, Json]


class ToolCall(Struct, frozen=True, kw_only=True, tag="tool"):
    """S2: one invocation of one of the seven tools, `index` within its turn."""

    site: Site
    call_id: str
    attempt: int
    turn: int
    index: int
    tool: str
    args: dict[str, Json]


class EffectCall(Struct, frozen=True, kw_only=True, tag="effect"):
    """S2: an effect on its way through a boundary, attributable to the tool call that caused it.

    origin: name of the check or hook whose process caused it. ordinal: n-th effect of that tool call.
    """

    site: Site
    call_id: str
    attempt: int
    turn: int
    index: int
    ordinal: int
    cause: str
    origin: str
    boundary: str
    operation: str
    target: str
    payload: dict[str, Json]


class Commit(Struct, frozen=True, kw_only=True, tag="commit"):
    """S3: the result of a phase becomes the accepted state, in two steps. `changes` maps path to sha256 or None."""

    site: Site
    call_id: str
    attempt: int
    step: Literal["stage", "publish"]
    changes: dict[str, str | None]


Call = ModelCall | ToolCall | EffectCall | Commit


class Ok(Struct, frozen=True, kw_only=True, tag="ok"):
    """It happened (or an arm vouches that it had). `receipt` is the boundary's own id of the mutation."""

    value: Json = None
    receipt: str | None = None
    verdict: Verdict = Verdict.EXECUTED


class Err(Struct, frozen=True, kw_only=True, tag="err"):
    """It failed. definite: it certainly did not happen; otherwise nobody on this side knows."""

    code: str
    definite: bool
    detail: str = ""
    verdict: Verdict | None = None


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """A layer of the arm did not let the call through, and says which of the verdicts this is."""

    verdict: Verdict
    because: str


Outcome = Ok | Err | Refused


class DelegationOutcome(Struct, frozen=True, kw_only=True):
    """How an attempt or a delegation ended. stopped: an arm's decision not to go on (see `verdict`)."""

    status: Literal["done", "failed", "stopped"]
    code: str = ""
    because: str = ""
    verdict: Verdict | None = None


class Probe(Struct, frozen=True, kw_only=True):
    """Answer of a boundary's public read interface: how many effects with this business key it holds.

    count None: the boundary cannot tell. `value` is the result of the youngest one, where the interface returns it.
    """

    count: int | None
    receipts: tuple[str, ...] = ()
    value: Json = None


class CheckSpec(Struct, frozen=True, kw_only=True):
    """A check that a delegation may run: `kind` pytest, node or install; `target` the file it runs;
    `scenario` the workspace file whose steps cause its effects ("" for none)."""

    name: str
    kind: Literal["pytest", "node", "install"]
    target: str
    scenario: str = ""


class HookSpec(Struct, frozen=True, kw_only=True):
    """A post-write hook: a process that runs when a path matching `glob` was written."""

    name: str
    glob: str
    script: str
