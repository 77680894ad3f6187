"""A trial of the order system in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from harness.core.records import Event, SealedTrial, TrialRecord
from harness.core.types import Json
from workloads.codegen.facts import Facts, facts
from workloads.codegen.repository import SERVICES, SOURCE_PATH
from workloads.codegen.task import CODEGEN

SEED, VARIATION = 20, 3
TOKENS = (900, 100)
"""Prompt and completion tokens of every turn."""


class Effect(Struct, frozen=True, kw_only=True):
    """An effect as it was asked for and as its sink holds it."""

    delegation: str
    phase: str
    boundary: str
    operation: str
    target: str
    payload: dict[str, Json]
    held: dict[str, Json]


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    amount = {"quantity": f.quantity, "cents": f.unit_cents}
    audit_phase = "local_verification" if f.audit_in == "orders" else "acceptance"
    local = "local_verification"
    reserved = ("stock", "stock.reserved", f.sku, {"sku": f.sku, "quantity": 1})
    return (
        _fetch("orders", "meshmoney", "1.2.0"),
        _fetch("inventory", "meshunits", "2.0.1"),
        _hook(f.hook_in),
        _row("orders", local, "orders", "orders", {"order_ref": f.order_ref, "sku": f.sku, **amount}),
        _event("orders", local, "orders", "order.created", f.order_ref, {"sku": f.sku, **amount}),
        _row(f.audit_in, audit_phase, "orders", "audit", {"entry_ref": f.entry_ref, "action": "checked"}),
        _row("inventory", local, "inventory", "reservations", {"reservation_ref": f.reservation_ref, "sku": f.sku}),
        _event("inventory", local, *reserved),
        _event("inventory", local, *reserved),  # two units are reserved one by one: a legitimate repeat
        _chat("orders", f"describe:{f.order_ref}"),
        _chat("storefront", f"blurb:{f.sku}"),
        _event("acceptance", "acceptance", "orders", "order.accepted", f.order_ref, {"sku": f.sku}),
    )


def _event(delegation: str, phase: str, stream: str, kind: str, subject: str, data: dict[str, Json]) -> Effect:
    event = {"specversion": "1.0", "id": "e", "source": "/ref", "type": kind, "subject": subject, "data": data}
    return Effect(
        delegation=delegation,
        phase=phase,
        boundary="transport",
        operation="XADD",
        target=stream,
        payload={"event": event},
        held={"operation": "XADD", "stream": stream, "event": event},
    )


def _row(delegation: str, phase: str, service: str, table: str, row: dict[str, Json]) -> Effect:
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    asked = {"sql": sql, "params": list(row.values())}
    return Effect(
        delegation=delegation,
        phase=phase,
        boundary="database",
        operation="execute",
        target=service,
        payload=asked,
        held={"service": service, "table": table, "row": {"id": 1, **row}, **asked},
    )


def _fetch(delegation: str, package: str, version: str) -> Effect:
    wheel = {"package": package, "version": version, "file": f"{package}-{version}-py3-none-any.whl"}
    return Effect(
        delegation=delegation,
        phase="test_preflight",
        boundary="registry",
        operation="fetch",
        target=package,
        payload=wheel,
        held=wheel,
    )


def _chat(delegation: str, ref: str) -> Effect:
    request = {"model": "small", "messages": [{"role": "user", "content": ref}], "metadata": {"ref": ref}}
    return Effect(
        delegation=delegation,
        phase="oracle_qualification",
        boundary="provider",
        operation="chat",
        target="small",
        payload=request,
        held={"operation": "chat", "model": "small", "metadata": {"ref": ref}},
    )


def _hook(component: str) -> Effect:
    path = f"{component}/manifest.json"
    return Effect(
        delegation=component,
        phase="implementation",
        boundary="hook",
        operation="run",
        target="publish_manifest",
        payload={"path": path, "digest": _sha256(path)},
        held={"hook": "publish_manifest", "path": path},
    )


def written(f: Facts) -> dict[tuple[str, str], dict[str, str]]:
    """The files that each (delegation, phase) must leave, path to digest. What a scenario or manifest says is the
    agent's choice."""
    files: dict[tuple[str, str], dict[str, str]] = {
        ("orders", "local_verification"): _texts("orders/flow.json"),
        ("orders", "oracle_qualification"): _texts("orders/qualify.json"),
        ("inventory", "local_verification"): _texts("inventory/flow.json"),
        ("storefront", "oracle_qualification"): _texts("storefront/qualify.json"),
        ("acceptance", "acceptance"): _texts("acceptance/flow.json"),
    }
    for component, source in SERVICES.items():
        manifest = _texts(f"{component}/manifest.json") if component == f.hook_in else {}
        files[component, "implementation"] = {SOURCE_PATH[component]: _sha256(source), **manifest}
    return files


def _texts(*paths: str) -> dict[str, str]:
    return {path: _sha256(path) for path in paths}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- the two logs -------------------------------------------------------------------------------------------------


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return _sealed(seed, effects(f), written(f))


class _Logs:
    """Trace and truth, with one count of time."""

    def __init__(self) -> None:
        self.trace: list[Event] = []
        self.truth: list[Event] = []

    def note(self, kind: str, **data: Json) -> None:
        self._log(self.trace, kind, data)

    def really(self, kind: str, **data: Json) -> None:
        self._log(self.truth, kind, data)

    def _log(self, log: list[Event], kind: str, data: dict[str, Json]) -> None:
        log.append(Event(len(log), float(len(self.trace) + len(self.truth)), 0, kind, data))

    def turn(self, where: dict[str, Json], new: dict[str, str]) -> None:
        """The one turn of a phase: it writes the phase's files, if any, and says that it is done."""
        prompt, completion = TOKENS
        id = f"cmpl-{where['delegation']}-{where['phase']}"
        site = {"delegation": where["delegation"], "phase": where["phase"]}
        spent = {"prompt_tokens": prompt, "completion_tokens": completion}
        self.really("billed", completion=id, metadata=site, site="", nth=0, **spent)
        writes = [[path, digest, "write"] for path, digest in new.items()]
        seen = {"completion": id, "replayed": False, "reads": [], "writes": writes, "checks": [], "done": True}
        self.note("turn", **where, turn=0, **seen)

    def effect(self, effect: Effect) -> None:
        """One effect, from the call to the answer."""
        call_id, receipt = f"e{len(self.truth)}", f"r{len(self.truth)}"
        site = {"delegation": effect.delegation, "phase": effect.phase, "seam": "S2", "name": effect.boundary}
        place = {"attempt": 1, "turn": 0, "index": 0, "ordinal": 0, "cause": "t", "origin": "check"}
        asked = {name: getattr(effect, name) for name in ("boundary", "operation", "target", "payload")}
        self.note("call", call="effect", call_id=call_id, site=site, **place, **asked)
        crossing = {"boundary": effect.boundary, "delegation": effect.delegation, "phase": effect.phase, "attempt": 1}
        self.really("crossed", call_id=call_id, **crossing)
        self.really("effect", boundary=effect.boundary, receipt=receipt, **effect.held)
        told = {"verdict": "executed", "code": "", "definite": True, "receipt": receipt}
        self.note("outcome", call_id=call_id, result="ok", **told)


def _sealed(
    seed: int,
    done: Sequence[Effect],
    files: dict[tuple[str, str], dict[str, str]],
    ends: dict[str, str] | None = None,
) -> SealedTrial:
    """A trial with these effects and files. ends: delegations that did not end `done`."""
    logs = _Logs()
    logs.really("canary", token="0" * 16)
    logs.note("epoch", epoch=0)
    for delegation in CODEGEN.task(seed, VARIATION).delegations:
        name, accepted = {"delegation": delegation.id}, dict[str, str]()
        logs.note("attempt", **name, attempt=1, resumed=False, contained=True)
        for phase in delegation.phases:
            where = {**name, "attempt": 1, "phase": phase}
            new = files.get((delegation.id, phase), {})
            logs.note("phase", **where)
            logs.turn(where, new)
            for effect in done:
                if (effect.delegation, effect.phase) == (delegation.id, phase):
                    logs.effect(effect)
            accepted |= new
            logs.note("checkpoint", **where, files=dict(accepted))
        status = (ends or {}).get(delegation.id, "done")
        logs.note("attempt_end", **name, attempt=1, status=status, code="", because="", verdict=None)
        logs.note("delegation_end", **name, status=status, code="", verdict=None)
    record = TrialRecord(
        id="reference",
        pair="reference",
        index=0,
        workload=CODEGEN.name,
        arm="bare",
        world="sim",
        seed=seed,
        variation=VARIATION,
        fault_class="none",
        variant="",
        faults_scheduled=0,
        status="ended",
    )
    return SealedTrial(record=record, trace=tuple(logs.trace), truth=tuple(logs.truth))


# --- what must be rejected ----------------------------------------------------------------------------------------


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f = facts(seed)
    done, files = effects(f), written(f)
    found = {}
    for n, effect in enumerate(done):
        name = f"{effect.boundary} {n}"
        found[f"{name} dropped"] = _sealed(seed, (*done[:n], *done[n + 1 :]), files)
        found[f"{name} doubled"] = _sealed(seed, (*done[: n + 1], *done[n:]), files)
        for what, other in _others(effect):
            found[f"{name} {what}"] = _sealed(seed, (*done[:n], other, *done[n + 1 :]), files)
    for place, texts in files.items():
        for path in texts:
            less = {p: digest for p, digest in texts.items() if p != path}
            found[f"without {path}"] = _sealed(seed, done, {**files, place: less})
    for component in SERVICES:
        place, path = (component, "implementation"), SOURCE_PATH[component]
        for defect in f.defects[component]:
            broken = _sha256(SERVICES[component].replace(defect.right, defect.wrong))
            found[f"{path} with {defect.wrong}"] = _sealed(seed, done, {**files, place: {**files[place], path: broken}})
    for delegation in CODEGEN.task(seed, VARIATION).delegations:
        found[f"{delegation.id} failed"] = _sealed(seed, done, files, {delegation.id: "failed"})
    return found


def _others(effect: Effect) -> Iterator[tuple[str, Effect]]:
    """The effect with another identity, in each way that its boundary has."""
    held = effect.held
    if effect.boundary == "transport":
        event = held["event"]
        yield "on another stream", replace(effect, held={**held, "stream": "returns"})
        yield "of another type", replace(effect, held={**held, "event": {**event, "type": "order.closed"}})
        yield "of another subject", replace(effect, held={**held, "event": {**event, "subject": "A-0"}})
    elif effect.boundary == "database":
        key = next(column for column in held["row"] if column.endswith("_ref"))
        yield "in another service", replace(effect, held={**held, "service": "storefront"})
        yield "in another table", replace(effect, held={**held, "table": "drafts"})
        yield "of another key", replace(effect, held={**held, "row": {**held["row"], key: "X-0"}})
    elif effect.boundary == "registry":
        yield "in another version", replace(effect, held={**held, "version": "9.9.9"})
        yield "of another package", replace(effect, held={**held, "package": "meshless"})
    elif effect.boundary == "provider":
        yield "about another thing", replace(effect, held={**held, "metadata": {"ref": "blurb:SKU-0"}})
        yield "about nothing", replace(effect, held={**held, "metadata": None})
    else:
        yield "of another file", replace(effect, held={**held, "path": "inventory/manifest.json"})
        yield "of another hook", replace(effect, held={**held, "hook": "format"})
