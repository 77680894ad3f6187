"""A durable store, a boundary, and processes that come and go around one effect ledger."""

from __future__ import annotations

from arms.mesh.m3_effects import EffectLedger
from harness.core.types import DelegationOutcome, EffectCall, Err, Ok, Outcome, Probe
from harness.orchestrator.store import SqliteStore
from tests.unit.armbench import Notes, Outside, Time, attempt, context, effect, event, run

LATE = Err(code="timeout", definite=False)
NO = Err(code="http-503", definite=True)


class Place:
    """A durable store, a boundary, and the layer of the process that holds the delegation `d` at the moment."""

    def __init__(self) -> None:
        self.store, self.outside, self.time, self.notes = SqliteStore(":memory:"), Outside(), Time(), Notes()
        self.asked = 0
        self.visible_from = 0  # the boundary answers from this probe on
        self.layer = self.restart()

    def restart(self, name: str = "d", tenant: str = "acme", **options: bool) -> EffectLedger:
        self.layer = self.process(name, tenant, **options)
        return self.layer

    def process(self, name: str = "d", tenant: str = "acme", **options: bool) -> EffectLedger:
        async def probe(call: EffectCall) -> Probe:
            self.asked += 1
            if self.asked < self.visible_from:
                return Probe(count=None)
            return self.outside.answer(tenant, thing_of(call))

        made = EffectLedger(context(self.store, probe=probe, time=self.time, note=self.notes), **options)
        run(made.on_delegate(attempt(name, tenant), done))
        return made

    def cross(
        self, *answers: Outcome | None, layer: EffectLedger | None = None, tenant: str = "acme", **call: object
    ) -> Outcome:
        """An effect of a fresh spelling. answers: of the boundary, one per execution; None: it happens, and says so."""
        told = iter(answers)

        async def beyond(asked: EffectCall) -> Outcome:
            answer = next(told, None)
            if answer is None or answer is LATE:
                receipt = self.outside.happen(tenant, thing_of(asked))
            return answer or Ok(value={"receipt": receipt}, receipt=receipt)

        fields = {"payload": event(n=len(self.outside.held)), "cause": "t1", **call}
        return run((layer or self.layer).on_effect(effect(**fields), beyond))

    @property
    def count(self) -> int:
        return len(self.outside.held)


def thing_of(call: EffectCall) -> tuple[str, str]:
    return call.boundary, str(call.payload.get("event", {}).get("subject", call.target))


async def done(attempt: object) -> DelegationOutcome:
    return DelegationOutcome(status="done")


def verdicts(*outcomes: Outcome) -> list[str]:
    return [o.code if isinstance(o, Err) else o.verdict.value for o in outcomes]
