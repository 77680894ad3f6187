"""Transport-level retry that every arm shares, with the sources of its numbers.

Model calls: the OpenAI Python SDK retries twice, from 0.5 s to 8 s, on connection errors, 408, 409, 429 and 5xx.
Effects: Istio retries twice on connect-failure, refused-stream, unavailable and cancelled, i.e. on errors of calls that
certainly did not happen, in Envoy's intervals of 25 ms to 250 ms. Delegations: Celery's `max_retries` is 3.
"""

from arms.common.retry import RetryPolicy

MODEL_RETRY = RetryPolicy(
    attempts_max=3,
    base_ms=500,
    max_ms=8_000,
    retry_on=("definite", "connection-reset", "truncated", "timeout"),
)
EFFECT_RETRY = RetryPolicy(attempts_max=3, base_ms=25, max_ms=250, retry_on=("definite",))
DELEGATION_ATTEMPTS = 4
DELEGATION_PAUSE_MS = (1_000.0, 30_000.0)
