"""The Agent Mesh arm: primitives around the seams, the delegation as the unit of enforcement.

Here: M3 complete, the tool-session and session-turn scopes of M1, and M4's token ledger. Transport-level retry of
errors that certainly did not happen is the same as in the naive arm, inside the ledger.
"""

from __future__ import annotations

from msgspec.structs import asdict, replace

from arms.common.defaults import DELEGATION_ATTEMPTS, DELEGATION_PAUSE_MS, EFFECT_RETRY, MODEL_RETRY
from arms.common.retry import Retry, RetryDelegation
from arms.mesh import m1_progress, m3_effects, m4_budget
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer


def layers(
    ctx: ArmContext,
    *,
    m1: bool = True,
    m3: bool = True,
    m4: bool = True,
    probe: bool = True,
    provider_replay: bool = True,
) -> tuple[Layer, ...]:
    """The onion; a primitive that is left out is simply not there."""
    return (
        RetryDelegation(
            ctx, attempts_max=DELEGATION_ATTEMPTS, base_ms=DELEGATION_PAUSE_MS[0], max_ms=DELEGATION_PAUSE_MS[1]
        ),
        *((m1_progress.ProgressBreaker(ctx),) if m1 else ()),
        *((m3_effects.EffectLedger(ctx, probe=probe, provider_replay=provider_replay),) if m3 else ()),
        Retry(ctx, model=MODEL_RETRY, effect=EFFECT_RETRY),
        *((m4_budget.TokenBudget(ctx),) if m4 else ()),  # within the retry: every try is paid for
    )


_PARAMETERS = {
    "model_retry": asdict(MODEL_RETRY),
    "effect_retry": asdict(EFFECT_RETRY),
    "delegation_attempts": DELEGATION_ATTEMPTS,
    "repeats_max": m1_progress.REPEATS_MAX,
    "idle_turns_max": m1_progress.IDLE_TURNS_MAX,
    "stall_ms": m1_progress.STALL_MS,
    "lease_ms": m3_effects.LEASE_MS,
    "probes_max": m3_effects.PROBES_MAX,
    "run_tokens": m4_budget.RUN_TOKENS,
}

MESH = Arm(
    name="mesh",
    about="Effect ledger with probe and provider replay, progress breaker, token budgets, containment.",
    layers=layers,
    contained=True,
    parameters=_PARAMETERS,
)


def without(name: str, about: str, **left_out: bool) -> Arm:
    """The mesh arm with something left out."""
    return replace(MESH, name=name, about=about, layers=lambda ctx: layers(ctx, **left_out))


MESH_WITHOUT_PROBE = without("mesh_without_probe", "The mesh that never asks a boundary.", probe=False)
MESH_WITHOUT_PROVIDER_REPLAY = without(
    "mesh_without_provider_replay", "The mesh that buys every model answer anew.", provider_replay=False
)
