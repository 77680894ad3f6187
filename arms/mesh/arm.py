"""The Agent Mesh arm: primitives around the seams, the delegation as the unit of enforcement.

The ablation ladder stands here as data: every arm of it is the same onion with some of the layers left out. Retry of
errors that certainly did not happen is the same as in the naive arm, inside the ledger.
"""

from __future__ import annotations

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from arms.common.coverage import coverage_routing
from arms.common.defaults import DELEGATION_ATTEMPTS, DELEGATION_PAUSE_MS, EFFECT_RETRY, MODEL_RETRY
from arms.common.retry import Retry, RetryDelegation
from arms.mesh import m6_quarantine
from arms.mesh.control import breaker, budget
from arms.mesh.doubt import PROBES_MAX
from arms.mesh.ledger import LEASE_MS, LOCAL, Backend
from arms.mesh.m1_progress import ProgressBreaker
from arms.mesh.m2_exoneration import Gates, boot_check
from arms.mesh.m3_effects import EffectLedger
from arms.mesh.m4_budget import BudgetLattice
from arms.mesh.m5_routing import FailureRouting
from arms.mesh.m6_quarantine import Observations, Quarantine
from arms.mesh.rounds import Rounds
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer

PRIMITIVES = ("m1", "m2", "m3", "m4", "m5", "m6")


def layers(
    ctx: ArmContext,
    *,
    m1: bool = True,
    m2: bool = True,
    m3: bool = True,
    m4: bool = True,
    m5: bool = True,
    m6: bool = True,
    probe: bool = True,
    provider_replay: bool = True,
    ledger: Backend | None = None,
) -> tuple[Layer, ...]:
    """The onion, outermost first; a primitive that is left out is simply not there.

    Without M5 a failed acceptance wakes whatever its scenario goes through, as the naive arm does; without M1 and M4
    failed attempts are retried as there. Quarantine lies between the breaker, which would take its extra runs for a
    loop, and the ledger, which knows their effects. ledger: a backend that several hosts share (`open_backend` with the
    DSN of a PostgreSQL server), where it is not this orchestrator's own. The token budget is innermost: every try is
    paid for.
    """
    seen = Observations(ctx) if m6 else None
    lattice = BudgetLattice(ctx) if m4 else None
    onion: list[Layer | None] = [
        FailureRouting(ctx, seen) if m5 else coverage_routing(ctx),
        Rounds(ctx, stall=m1, refund=m4, observations=seen, budget=lattice) if m1 or m4 else _plain_retry(ctx),
        Gates(ctx, observations=seen) if m2 else None,
        ProgressBreaker(ctx, seen) if m1 else None,
        Quarantine(ctx, seen, m6_quarantine.POLICY if m3 else ONE_RUN) if seen else None,
        EffectLedger(
            ctx,
            probe=probe,
            provider_replay=provider_replay,
            backend=ledger,
            holder=ctx.worker or LOCAL,
            observations=seen,
        )
        if m3
        else None,
        Retry(ctx, model=MODEL_RETRY, effect=EFFECT_RETRY),
        lattice,
    ]
    return tuple(layer for layer in onion if layer is not None)


ONE_RUN = replace(m6_quarantine.POLICY, red_answers_min=1, runs_max=1, monitor_runs_max=1)
"""Without a ledger an extra run of a check would have its effects once more, so there is none."""


def _plain_retry(ctx: ArmContext) -> Layer:
    base_ms, max_ms = DELEGATION_PAUSE_MS
    return RetryDelegation(ctx, attempts_max=DELEGATION_ATTEMPTS, base_ms=base_ms, max_ms=max_ms)


MESH = Arm(
    name="mesh",
    about="The Agent Mesh: progress breaker, gates, effect ledger, budget lattice, failure routing, quarantine.",
    layers=layers,
    contained=True,
    boot_check=boot_check,
    parameters={
        "model_retry": asdict(MODEL_RETRY),
        "effect_retry": asdict(EFFECT_RETRY),
        "delegation_attempts": DELEGATION_ATTEMPTS,
        "breaker": to_builtins(breaker.POLICY, order="sorted"),
        "budget": to_builtins(budget.POLICY, order="sorted"),
        "quarantine": to_builtins(m6_quarantine.POLICY, order="sorted"),
        "lease_ms": LEASE_MS,
        "probes_max": PROBES_MAX,
    },
)


def variant(name: str, about: str, **switched: bool) -> Arm:
    """The mesh arm with something left out. Its boot check goes with the gates."""
    boots = MESH.boot_check if switched.get("m2", True) else None
    return replace(
        MESH, name=name, about=about, layers=lambda ctx: layers(ctx, ledger=None, **switched), boot_check=boots
    )


MESH_WITHOUT_PROBE = variant("mesh_without_probe", "The mesh that never asks a boundary.", probe=False)
MESH_WITHOUT_PROVIDER_REPLAY = variant(
    "mesh_without_provider_replay", "The mesh that buys every model answer anew.", provider_replay=False
)

_WHAT = {
    "m1": "progress breaker",
    "m2": "gates",
    "m3": "effect ledger",
    "m4": "budget lattice",
    "m5": "failure routing",
    "m6": "quarantine",
}
ABLATIONS: tuple[Arm, ...] = (
    *(variant(f"mesh_without_{m}", f"The mesh without its {_WHAT[m]}.", **{m: False}) for m in PRIMITIVES),
    *(
        variant(
            f"mesh_only_{m}",
            f"Of the mesh, its {_WHAT[m]} alone (and containment).",
            **{other: False for other in PRIMITIVES if other != m},
        )
        for m in PRIMITIVES
    ),
)
"""One primitive taken away from the mesh, and one alone."""
