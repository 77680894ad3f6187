"""The test of the ledger's state machine: every guard of the ledger has a mutation that it notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from arms.common.business import business_key, declaration
from arms.mesh import doubt, ledger, m3_effects
from arms.mesh.doubt import Crossing, known_by
from arms.mesh.identity import Identity, identity
from arms.mesh.ledger import Books, SqliteBackend, Write, resolve
from arms.mesh.m3_effects import EffectLedger
from arms.sabotage.arms import AttemptKeyed, FuzzyMerge
from harness.core.roles import ArmContext
from harness.core.seams import NextEffect
from harness.core.types import EffectCall, Outcome, Probe
from tests.unit.test_ledger import SETTINGS, LedgerMachine

QUICK = settings(SETTINGS, phases=[Phase.generate], max_examples=300)

Patch = pytest.MonkeyPatch


class AdvancingAtOnce(EffectLedger):
    """Counts occurrences by calls, whether they came to anything or not."""

    def __init__(self, ctx: ArmContext) -> None:
        super().__init__(ctx)
        self._calls: Counter[str] = Counter()

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        clause = declaration(self._ctx, call)
        who = identity(call, clause)
        print_ = m3_effects.fingerprint(who.text)
        self._calls[call.cause + print_] += 1
        key = self._key(call, call.boundary, print_, self._calls[call.cause + print_] - 1)
        business = known_by(business_key(self._ctx, call), call, clause)
        return await self._once(Crossing(call, clause, who, key, business, next))


def one_tenant(patch: Patch) -> None:
    """Takes all tenants for one."""
    patch.setattr(m3_effects, "partition", lambda delegation: "")


def unfenced(patch: Patch) -> None:
    """Whoever writes holds the newest token."""
    patch.setattr(ledger, "holds", lambda lease, token, now_ms: True)


def unrecognised(patch: Patch) -> None:
    """What was had before is had again."""
    patch.setattr(m3_effects, "was_had", lambda entry: False)


def keyed_on_the_call(patch: Patch) -> None:
    """The identity of an effect is that of its crossing."""
    patch.setattr(m3_effects, "identity", lambda call, *more: Identity(call.call_id))


def without(state: str) -> Callable[[Patch], None]:
    """Entries of this state are never written."""

    def mutate(patch: Patch) -> None:
        write = SqliteBackend.write

        def written(self: SqliteBackend, writes: Sequence[Write]) -> list[bool]:
            return write(self, [w for w in writes if w.entry.state != state]) or [True]

        patch.setattr(SqliteBackend, "write", written)

    return mutate


def counted_alone(patch: Patch) -> None:
    """Takes what any delegation's effect left at the boundary for its own."""
    patch.setattr(SqliteBackend, "books", lambda self, tenant, business, holder: Books(0))


def unreleased(patch: Patch) -> None:
    """Keeps the reservation of an effect that certainly did not happen."""
    patch.setattr(SqliteBackend, "forget", lambda self, key, token: None)


def guessing(answer: str) -> Callable[[Patch], None]:
    """Says this where a boundary cannot tell."""

    def mutate(patch: Patch) -> None:
        def guess(known: int, told: Probe, content: bool) -> str:
            return answer if told.count is None else resolve(known, told, content)

        patch.setattr(doubt, "resolve", guess)

    return mutate


def machine(ledger: Callable[[ArmContext], EffectLedger]) -> type[LedgerMachine]:
    return type("Mutated", (LedgerMachine,), {"made": staticmethod(ledger)})


@pytest.mark.parametrize("ledger", [AttemptKeyed, FuzzyMerge, AdvancingAtOnce])
def test_a_ledger_with_another_key_is_noticed(ledger: type[EffectLedger]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(ledger), settings=QUICK)


MUTATIONS: dict[str, Callable[[Patch], None]] = {
    "unfenced": unfenced,
    "unrecognised": unrecognised,
    "keyed_on_the_call": keyed_on_the_call,
    "one_tenant": one_tenant,
    "unreserved": without("reserved"),
    "forgotten": without("recorded"),
    "counted_alone": counted_alone,
    "unreleased": unreleased,
    "guess_absent": guessing("absent"),
    "guess_present": guessing("present"),
}


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS)
def test_a_ledger_without_one_of_its_guards_is_noticed(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(LedgerMachine, settings=QUICK)
