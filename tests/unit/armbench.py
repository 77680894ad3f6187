"""What the tests of single layers share: a context without a trial behind it, calls, and boundaries that remember."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from msgspec import Struct

from harness.core import rng
from harness.core.roles import ArmContext
from harness.core.types import (
    Attempt,
    DeclaredEffect,
    Delegation,
    EffectCall,
    EffectContract,
    Json,
    ModelCall,
    Probe,
    Seam,
    Site,
    ToolCall,
)
from harness.orchestrator.store import SqliteStore

EVENT = DeclaredEffect(
    boundary="transport",
    operation="XADD",
    target="orders",
    key=("event.type", "event.subject"),
    volatile=("event.id", "event.stamp"),
)
HOOK = DeclaredEffect(boundary="hook", operation="run", target="notify", key=("path",), volatile=("digest",))
FETCH = DeclaredEffect(boundary="registry", operation="fetch", target="*", key=("package",), content=True)
CONTRACT = EffectContract(writable=("**",), checks=("flow",), effects=(EVENT, HOOK, FETCH))


class Time:
    """Nominal time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> float:
        return self.now

    async def sleep_ms(self, ms: float) -> None:
        self.slept.append(ms)
        self.now += ms


class Notes(list[tuple[str, dict[str, Json]]]):
    """Remarks of an arm, in order."""

    def __call__(self, kind: str, data: Mapping[str, Json]) -> None:
        self.append((kind, dict(data)))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self]


async def no_probe(call: EffectCall) -> Probe:
    return Probe(count=None)


def context(
    store: Any = None,
    *,
    time: Time | None = None,
    note: Notes | None = None,
    probe: Callable[[EffectCall], Awaitable[Probe]] = no_probe,
    draw: Callable[..., float] = lambda *name: rng.draw(1, *name),
    progress: Callable[[str], int] = lambda call_id: 0,
    contract: EffectContract = CONTRACT,
    **more: Any,
) -> ArmContext:
    """A context whose delegations all have the same contract. more: fields to replace."""
    clock = time or Time()

    class Everybody(dict[str, EffectContract]):
        def get(self, key: str, default: Any = None) -> EffectContract:
            return contract

    fields: dict[str, Any] = {
        "now_ms": clock.now_ms,
        "sleep_ms": clock.sleep_ms,
        "draw": draw,
        "note": Notes() if note is None else note,
        "store": SqliteStore(":memory:") if store is None else store,
        "probe": probe,
        "progress": progress,
        "contracts": Everybody(),
        "epoch": 0,
    }
    return ArmContext(**(fields | more))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never really waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


# --- calls --------------------------------------------------------------------------------------------------------


def delegation(name: str = "d", tenant: str = "acme", **more: Any) -> Delegation:
    return Delegation(id=name, tenant=tenant, goal="g", phases=("p",), contract=CONTRACT, **more)


def attempt(name: str = "d", tenant: str = "acme", number: int = 1, **more: Any) -> Attempt:
    return Attempt(delegation=delegation(name, tenant, **more), number=number)


def _site(delegation: str, name: str, seam: Seam) -> Site:
    return Site(delegation=delegation, phase="p", seam=seam, name=name)


def model(request: dict[str, Json] | None = None, delegation: str = "d", **more: Any) -> ModelCall:
    fields: dict[str, Any] = {
        "call_id": "m1",
        "attempt": 1,
        "turn": 0,
        "request": {"messages": []} if request is None else request,
    }
    return ModelCall(site=_site(delegation, "chat", Seam.MODEL), **(fields | more))


def tool(name: str, delegation: str = "d", **more: Any) -> ToolCall:
    fields: dict[str, Any] = {"call_id": "t1", "attempt": 1, "turn": 0, "index": 0, "tool": name, "args": {}}
    return ToolCall(site=_site(delegation, name, Seam.TOOL), **(fields | more))


def effect(
    payload: dict[str, Json] | None = None, declared: DeclaredEffect = EVENT, delegation: str = "d", **more: Any
) -> EffectCall:
    fields: dict[str, Any] = {"call_id": "e1", "attempt": 1, "turn": 0, "index": 0, "ordinal": 0, "cause": "t1"}
    fields |= {"origin": "flow", "boundary": declared.boundary, "operation": declared.operation}
    fields |= {"target": declared.target if declared.target != "*" else "wheel", "payload": payload or event()}
    return EffectCall(site=_site(delegation, declared.boundary, Seam.TOOL), **(fields | more))


def event(subject: str = "A-1", kind: str = "order.created", n: int = 0, **data: Json) -> dict[str, Json]:
    """The payload of an event. `n` spells it anew: volatile values, key order, and how numbers are written."""
    quantity = 2.0 if n % 2 else 2
    fields = {"id": f"id-{n}", "stamp": n, "type": kind, "subject": subject, "data": {"quantity": quantity, **data}}
    keys = list(fields) if n % 3 else list(reversed(fields))
    return {"event": {key: fields[key] for key in keys}}


# --- the outside --------------------------------------------------------------------------------------------------


class Held(Struct, frozen=True):
    """An effect that happened. what: boundary and business key."""

    tenant: str
    what: tuple[str, str]
    receipt: str


class Outside:
    """Boundaries that hold effects and tell a tenant which of its own are there. blind: boundaries that cannot tell
    at the moment; a hook never can."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.blind: set[str] = set()

    def happen(self, tenant: str, what: tuple[str, str]) -> str:
        receipt = f"{len(self.held) + 1}-0"
        self.held.append(Held(tenant, what, receipt))
        return receipt

    def receipts(self, tenant: str, what: tuple[str, str]) -> tuple[str, ...]:
        return tuple(h.receipt for h in self.held if (h.tenant, h.what) == (tenant, what))

    def sees(self, boundary: str) -> bool:
        return boundary not in self.blind and boundary != "hook"

    def answer(self, tenant: str, what: tuple[str, str]) -> Probe:
        if not self.sees(what[0]):
            return Probe(count=None)
        found = self.receipts(tenant, what)
        return Probe(count=len(found), receipts=found, value={"receipt": found[-1]} if found else None)
