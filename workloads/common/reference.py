"""How reference trials are written down: effects as their sinks hold them, both logs, and what must be rejected.

Why apart from everything that runs: what an oracle is held against owes nothing to the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from harness.core.records import Event, SealedTrial, TrialRecord
from harness.core.roles import Workload
from harness.core.types import Json
from workloads.common.keys import sha256

VARIATION = 3
TOKENS = (900, 100)
"""Prompt and completion tokens of every turn."""

Files = dict[tuple[str, str], dict[str, str]]
"""Path to digest, by delegation and phase."""


class Effect(Struct, frozen=True, kw_only=True):
    """An effect as it was asked for and as its sink holds it."""

    delegation: str
    phase: str
    boundary: str
    operation: str
    target: str
    payload: dict[str, Json]
    held: dict[str, Json]


def event_of(delegation: str, phase: str, stream: str, kind: str, subject: str, data: dict[str, Json]) -> Effect:
    """An event that is published."""
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


def row_of(delegation: str, phase: str, service: str, table: str, row: dict[str, Json]) -> Effect:
    """A row that is inserted."""
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


def fetch_of(delegation: str, phase: str, package: str, version: str) -> Effect:
    """A package that is fetched."""
    wheel = {"package": package, "version": version, "file": f"{package}-{version}-py3-none-any.whl"}
    return Effect(
        delegation=delegation,
        phase=phase,
        boundary="registry",
        operation="fetch",
        target=package,
        payload=wheel,
        held=wheel,
    )


def chat_of(delegation: str, phase: str, ref: str) -> Effect:
    """A completion that a service buys."""
    request = {"model": "small", "messages": [{"role": "user", "content": ref}], "metadata": {"ref": ref}}
    return Effect(
        delegation=delegation,
        phase=phase,
        boundary="provider",
        operation="chat",
        target="small",
        payload=request,
        held={"operation": "chat", "model": "small", "metadata": {"ref": ref}},
    )


def push_of(delegation: str, phase: str, branch: str, change: str, subject: str = "Work") -> Effect:
    """A branch that is moved to a commit whose trailer names `change`."""
    message = f"{subject}\n\nChange-Ref: {change}\n"
    return _moved(delegation, phase, "push", f"refs/heads/{branch}", message, sha256(change)[:40])


def tag_of(delegation: str, phase: str, name: str, subject: str = "Release") -> Effect:
    """A tag that is set."""
    return _moved(delegation, phase, "tag", f"refs/tags/{name}", f"{subject}\n", "")


def _moved(delegation: str, phase: str, operation: str, ref: str, message: str, tree: str) -> Effect:
    moved = {"ref": ref, "old": "0" * 40, "new": sha256(ref + message)[:40], "tree": tree, "message": message}
    return Effect(
        delegation=delegation,
        phase=phase,
        boundary="repository",
        operation=operation,
        target="origin",
        payload=moved,
        held={"operation": operation, "remote": "origin", **moved, "who": "Agent <agent@example.invalid>"},
    )


def hook_of(component: str, phase: str) -> Effect:
    """The hook that a component's manifest triggers."""
    path = f"{component}/manifest.json"
    return Effect(
        delegation=component,
        phase=phase,
        boundary="hook",
        operation="run",
        target="publish_manifest",
        payload={"path": path, "digest": sha256(path)},
        held={"hook": "publish_manifest", "path": path},
    )


def texts(*paths: str) -> dict[str, str]:
    """Files whose text is the agent's choice."""
    return {path: sha256(path) for path in paths}


# --- the two logs -------------------------------------------------------------------------------------------------


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


def sealed(
    workload: Workload,
    seed: int,
    done: Sequence[Effect],
    files: Files,
    ends: dict[str, str] | None = None,
    red: str = "",
) -> SealedTrial:
    """A trial with these effects and files. ends: delegations that did not end `done`; red: the one check that never
    passed."""
    logs = _Logs()
    logs.really("canary", token="0" * 16)
    logs.note("epoch", epoch=0)
    for delegation in workload.task(seed, VARIATION, "tdd").delegations:
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
        for check in delegation.contract.checks:
            logs.really("checked", check=check, **name, call_id=f"c{len(logs.truth)}", passed=check != red)
        status = (ends or {}).get(delegation.id, "done")
        logs.note("attempt_end", **name, attempt=1, status=status, code="", because="", verdict=None)
        logs.note("delegation_end", **name, status=status, code="", verdict=None)
    record = TrialRecord(
        id="reference",
        pair="reference",
        index=0,
        workload=workload.name,
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


class Broken(Struct, frozen=True):
    """A file with another text than it must have, left by this delegation in this phase."""

    what: str
    place: tuple[str, str]
    path: str
    text: str


def mutants_of(
    workload: Workload, seed: int, done: Sequence[Effect], files: Files, broken: Iterable[Broken]
) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    found = {}
    for n, effect in enumerate(done):
        name = f"{effect.boundary} {n}"
        found[f"{name} dropped"] = sealed(workload, seed, (*done[:n], *done[n + 1 :]), files)
        found[f"{name} doubled"] = sealed(workload, seed, (*done[: n + 1], *done[n:]), files)
        for what, other in _others(effect):
            found[f"{name} {what}"] = sealed(workload, seed, (*done[:n], other, *done[n + 1 :]), files)
    for place, left in files.items():
        for path in left:
            less = {p: digest for p, digest in left.items() if p != path}
            found[f"without {path}"] = sealed(workload, seed, done, {**files, place: less})
    for one in broken:
        left = {**files[one.place], one.path: sha256(one.text)}
        found[f"{one.path} with {one.what}"] = sealed(workload, seed, done, {**files, one.place: left})
    for delegation in workload.task(seed, VARIATION, "tdd").delegations:
        found[f"{delegation.id} failed"] = sealed(workload, seed, done, files, {delegation.id: "failed"})
    found["acceptance never green"] = sealed(workload, seed, done, files, red="acceptance")
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
        yield "in another service", replace(effect, held={**held, "service": "elsewhere"})
        yield "in another table", replace(effect, held={**held, "table": "drafts"})
        yield "of another key", replace(effect, held={**held, "row": {**held["row"], key: "X-0"}})
    elif effect.boundary == "registry":
        yield "in another version", replace(effect, held={**held, "version": "9.9.9"})
        yield "of another package", replace(effect, held={**held, "package": "meshless"})
    elif effect.boundary == "provider":
        yield "about another thing", replace(effect, held={**held, "metadata": {"ref": "blurb:SKU-0"}})
        yield "about nothing", replace(effect, held={**held, "metadata": None})
    elif effect.boundary == "repository":
        yield "at another reference", replace(effect, held={**held, "ref": f"{held['ref']}-0"})
        if effect.operation == "push":
            yield "of another change", replace(effect, held={**held, "message": "Work\n\nChange-Ref: other-0\n"})
            yield "of no change", replace(effect, held={**held, "message": "Work\n"})
    else:
        yield "of another file", replace(effect, held={**held, "path": "inventory/manifest.json"})
        yield "of another hook", replace(effect, held={**held, "hook": "format"})
