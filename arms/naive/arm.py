"""The service mesh's machinery around a delegation, with the defaults of well-known products: tuned, not a straw man.

Sources of the numbers: `arms.common.defaults` for retries; Envoy's route timeout (15 s) for effects and Bazel's `short`
test timeout (60 s) for checks and models; Envoy's outlier detection (5 consecutive errors, 30 s, at most 300 s) and
Hystrix's breaker (20 calls in 10 s, 50 %, 5 s).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import asdict

from arms.common.coverage import coverage_routing
from arms.common.defaults import DELEGATION_ATTEMPTS, DELEGATION_PAUSE_MS, EFFECT_RETRY, MODEL_RETRY
from arms.common.journal import Journal
from arms.common.retry import Retry, RetryDelegation
from arms.common.timeout import Timeout, TimeoutPolicy
from arms.naive.breaker import Breaker, BreakerPolicy
from harness.core.roles import Arm, ArmContext
from harness.core.seams import Layer

TIMEOUTS = TimeoutPolicy(delegation_ms=600_000, model_ms=60_000, check_ms=60_000, effect_ms=15_000)
BREAKER = BreakerPolicy(
    window_ms=10_000,
    volume_min=20,
    error_rate=0.5,
    open_ms=5_000,
    consecutive_max=5,
    ejection_ms=30_000,
    ejection_max_ms=300_000,
)


def layers(
    ctx: ArmContext,
    *,
    timeouts: TimeoutPolicy = TIMEOUTS,
    breaker: BreakerPolicy = BREAKER,
    attempts_max: int = DELEGATION_ATTEMPTS,
) -> tuple[Layer, ...]:
    return (
        coverage_routing(ctx),
        RetryDelegation(ctx, attempts_max=attempts_max, base_ms=DELEGATION_PAUSE_MS[0], max_ms=DELEGATION_PAUSE_MS[1]),
        Retry(ctx, model=MODEL_RETRY, tool=EFFECT_RETRY, effect=EFFECT_RETRY),
        Breaker(ctx, breaker),
        Timeout(ctx, timeouts),
    )


def _arm(name: str, about: str, made: Callable[[ArmContext], tuple[Layer, ...]] = layers, **more: object) -> Arm:
    parameters = {
        "model_retry": asdict(MODEL_RETRY),
        "effect_retry": asdict(EFFECT_RETRY),
        "timeouts": asdict(TIMEOUTS),
        "breaker": asdict(BREAKER),
        "delegation_attempts": DELEGATION_ATTEMPTS,
    }
    return Arm(name=name, about=about, layers=made, parameters=parameters, **more)  # type: ignore[arg-type]


NAIVE = _arm("naive", "Bounded retry, wall-clock timeouts, error-rate and consecutive-error breakers.")
NAIVE_CONTAINED = _arm("naive_contained", "The naive arm on a copy-on-write workspace.", contained=True)
NAIVE_REPLICA = _arm("naive_replica", "The naive arm with an independent agent, for A/A.", variation_stream=1)
JOURNALED = _arm(
    "journaled",
    "The naive arm on a durable journal of steps, as durable-execution engines keep one.",
    lambda ctx: (Journal(ctx), *layers(ctx)),
)
JOURNALED_PROBE = _arm(
    "journaled_probe",
    "The journaled arm, which also asks a boundary about the effect that was in flight.",
    lambda ctx: (Journal(ctx, probe=True), *layers(ctx)),
)
