"""The test of the ledger's state machine: every guard of the ledger has a mutation that it notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from arms.mesh import m3_effects
from arms.mesh.m3_effects import EffectLedger, Entry, Key, Ledger, resolve
from arms.sabotage.arms import AttemptKeyed, FuzzyMerge
from harness.core.roles import ArmContext
from harness.core.seams import NextDelegate, NextEffect
from harness.core.types import Attempt, DelegationOutcome, EffectCall, Outcome, Probe
from tests.unit.test_ledger import SETTINGS, LedgerMachine

QUICK = settings(SETTINGS, phases=[Phase.generate], max_examples=300)

Patch = pytest.MonkeyPatch


class AdvancingAtOnce(EffectLedger):
    """Counts occurrences by calls, whether they came to anything or not."""

    def __init__(self, ctx: ArmContext) -> None:
        super().__init__(ctx)
        self._calls: Counter[str] = Counter()

    async def on_effect(self, call: EffectCall, next: NextEffect) -> Outcome:
        print_ = m3_effects.fingerprint(m3_effects.canonical(self._ctx, call))
        self._calls[call.cause + print_] += 1
        occurrence = self._calls[call.cause + print_] - 1
        return await self._once(call, self._key(call, call.boundary, print_, occurrence), next)


class OneTenant(EffectLedger):
    """Takes all tenants for one."""

    async def on_delegate(self, attempt: Attempt, next: NextDelegate) -> DelegationOutcome:
        return await super().on_delegate(replace(attempt, delegation=replace(attempt.delegation, tenant="")), next)


def unfenced(patch: Patch) -> None:
    """Whoever writes holds the newest token."""
    write = Ledger.write

    def written(self: Ledger, key: Key, token: int, business: str, entry: Entry) -> bool:
        with self._ctx.store.transaction() as db:
            db.execute("UPDATE leases SET token=? WHERE delegation=?", (token, key.delegation))
        return write(self, key, token, business, entry)

    patch.setattr(Ledger, "write", written)


def unreserved(patch: Patch) -> None:
    """Nothing is written before the effect."""
    write = Ledger.write

    def written(self: Ledger, key: Key, token: int, business: str, entry: Entry) -> bool:
        return entry.state == "reserved" or write(self, key, token, business, entry)

    patch.setattr(Ledger, "write", written)


def forgotten(patch: Patch) -> None:
    """Nothing is written after the effect."""
    write = Ledger.write

    def written(self: Ledger, key: Key, token: int, business: str, entry: Entry) -> bool:
        return entry.state == "recorded" or write(self, key, token, business, entry)

    patch.setattr(Ledger, "write", written)


def counted_alone(patch: Patch) -> None:
    """Takes what any delegation's effect left at the boundary for its own."""
    patch.setattr(Ledger, "recorded", lambda self, tenant, business: 0)


def unreleased(patch: Patch) -> None:
    """Keeps the reservation of an effect that certainly did not happen."""
    patch.setattr(Ledger, "release", lambda self, key, token: None)


def guessing(answer: str) -> Callable[[Patch], None]:
    """Says this where a boundary cannot tell."""

    def mutate(patch: Patch) -> None:
        def guess(known: int, told: Probe, content: bool) -> str:
            return answer if told.count is None else resolve(known, told, content)

        patch.setattr(m3_effects, "resolve", guess)

    return mutate


def machine(ledger: Callable[[ArmContext], EffectLedger]) -> type[LedgerMachine]:
    return type("Mutated", (LedgerMachine,), {"made": staticmethod(ledger)})


@pytest.mark.parametrize("ledger", [AttemptKeyed, FuzzyMerge, AdvancingAtOnce, OneTenant])
def test_a_ledger_with_another_key_is_noticed(ledger: type[EffectLedger]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(ledger), settings=QUICK)


@pytest.mark.parametrize(
    "mutate",
    [unfenced, unreserved, forgotten, counted_alone, unreleased, guessing("absent"), guessing("present")],
    ids=["unfenced", "unreserved", "forgotten", "counted_alone", "unreleased", "guess_absent", "guess_present"],
)
def test_a_ledger_without_one_of_its_guards_is_noticed(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(LedgerMachine, settings=QUICK)
