"""The judge of the order system: reference trials made from its own scenarios and a real SQLite, and their mutants."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from harness.core.records import Event, SealedTrial, TrialRecord
from harness.core.types import Json
from harness.score import score, selftest
from harness.world.files import digest
from workloads.codegen.compose import Voice, scenario
from workloads.codegen.facts import facts
from workloads.codegen.oracle import ORACLE, SCENARIOS
from workloads.codegen.repository import SERVICES, SOURCE_PATH, TABLES
from workloads.codegen.task import CODEGEN
from workloads.oracles import ORACLES

SEEDS = range(6)
LEVELS = range(6)


class Services:
    """What the services of one trial hold, and both logs of the calls that led there."""

    def __init__(self, seed: int, level: int) -> None:
        self.trace: list[Event] = []
        self.truth: list[Event] = []
        self._numbers = itertools.count(1)
        self._seed, self._level = seed, level
        self._databases = {name: sqlite3.connect(":memory:") for name in TABLES}
        for name, ddl in TABLES.items():
            self._databases[name].executescript(";".join(ddl))

    def log(self, log: list[Event], kind: str, **data: Json) -> None:
        log.append(Event(len(log), float(next(self._numbers)), 0, kind, json.loads(json.dumps(data))))

    def effect(self, boundary: str, target: str, payload: dict, sinks: Callable[[], list[dict]], where: dict) -> None:
        call_id = f"c{next(self._numbers)}"
        call = {"call": "effect", "call_id": call_id, "site": {**where, "seam": "S2", "name": boundary}, "attempt": 1}
        call |= {"turn": 0, "index": 0, "ordinal": 0, "cause": "t", "origin": "check", "operation": "any"}
        self.log(self.trace, "call", **call, boundary=boundary, target=target, payload=payload)
        self.log(self.truth, "crossed", call_id=call_id, boundary=boundary, attempt=1, **where)
        for held in sinks():
            receipt = f"{boundary}-{next(self._numbers)}"
            self.log(self.truth, "effect", boundary=boundary, receipt=receipt, **held)
        told = {"verdict": "executed", "code": "", "definite": True, "receipt": receipt}
        self.log(self.trace, "outcome", call_id=call_id, result="ok", **told)

    def insert(self, step: dict, where: dict) -> None:
        payload = {"sql": step["sql"], "params": step["params"]}
        database = self._databases[step["service"]]

        def sinks() -> list[dict]:
            cursor = database.execute(step["sql"], step["params"])
            table = next(t for t in ("orders", "audit", "reservations") if f" {t}" in step["sql"])
            cursor = database.execute(f"SELECT * FROM {table} WHERE id = ?", (cursor.lastrowid,))
            row = dict(zip([c[0] for c in cursor.description], cursor.fetchone(), strict=True))
            return [{"service": step["service"], "table": table, "row": row, **payload}]

        self.effect("database", step["service"], payload, sinks, where)

    def play(self, path: str, delegation: str, phase: str) -> None:
        where = {"delegation": delegation, "phase": phase}
        voice = Voice(self._seed, self._level, (0, delegation, phase, 0))
        for step in json.loads(scenario(voice, facts(self._seed), path))["steps"]:
            if step["do"] == "insert":
                self.insert(step, where)
            elif step["do"] == "publish":
                held = {"operation": "XADD", "stream": step["stream"], "event": step["event"]}
                self.effect("transport", step["stream"], {"event": step["event"]}, lambda held=held: [held], where)
            elif step["do"] == "complete":
                held = {"metadata": step["request"]["metadata"], "model": "small"}
                self.effect("provider", "small", step["request"], lambda held=held: [held], where)

    def fetch(self, package: str, version: str, delegation: str) -> None:
        wheel = {"package": package, "version": version, "file": f"{package}-{version}-py3-none-any.whl"}
        where = {"delegation": delegation, "phase": "test_preflight"}
        self.effect("registry", package, wheel, lambda: [wheel], where)

    def hook(self, component: str) -> None:
        path, where = f"{component}/manifest.json", {"delegation": component, "phase": "implementation"}
        held = {"hook": "publish_manifest", "path": path}
        self.effect("hook", "publish_manifest", {"path": path, "digest": "d"}, lambda: [held], where)


def reference(seed: int, level: int) -> SealedTrial:
    """A trial in which everything happened as it should."""
    s, f = Services(seed, level), facts(seed)
    s.fetch("meshmoney", "1.2.0", "orders")
    s.fetch("meshunits", "2.0.1", "inventory")
    s.hook(f.hook_in)
    s.play("orders/flow.json", "orders", "local_verification")
    s.play("inventory/flow.json", "inventory", "local_verification")
    s.play("orders/qualify.json", "orders", "oracle_qualification")
    s.play("storefront/qualify.json", "storefront", "oracle_qualification")
    s.play("acceptance/flow.json", "acceptance", "acceptance")
    for delegation in CODEGEN.task(seed, level).delegations:
        files = {p: d for p, d in wanted(seed).items() if p.startswith(f"{delegation.id}/")}
        where = {"delegation": delegation.id, "attempt": 1}
        s.log(s.trace, "checkpoint", **where, phase=delegation.phases[-1], files=files)
        s.log(s.trace, "delegation_end", delegation=delegation.id, status="done", code="", verdict=None)
    s.log(s.truth, "checked", check="acceptance", delegation="acceptance", call_id="c0", passed=True)
    fields = dict(id="t", pair="q", index=0, workload="codegen", arm="bare", world="sim", seed=seed, variation=level)
    fields |= dict(fault_class="", variant="", faults_scheduled=0, status="ended")
    return SealedTrial(record=TrialRecord(**fields), trace=tuple(s.trace), truth=tuple(s.truth))


def wanted(seed: int) -> dict[str, str]:
    files = {SOURCE_PATH[c]: digest(text) for c, text in SERVICES.items()}
    return files | {p: digest(p) for p in (*SCENARIOS, f"{facts(seed).hook_in}/manifest.json", "orders/notes.md")}


# --- what is intended ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_twelve_effects_are_intended_where_the_task_has_room_for_them(seed: int) -> None:
    intents = ORACLE.intents(seed, 3)
    by_boundary: Counter[str] = Counter()
    for intent in intents:
        by_boundary[intent.boundary] += intent.required
    assert by_boundary == CODEGEN.intended
    assert len({(i.boundary, i.key) for i in intents}) == len(intents)
    phases = {d.id: d.phases for d in CODEGEN.task(seed, 3, "direct").delegations}
    assert all(i.phase in phases[i.delegation] for i in intents)
    assert intents == ORACLE.intents(seed, 3)


def test_the_placement_varies() -> None:
    placed = {tuple((i.delegation, i.phase) for i in ORACLE.intents(seed, 3)) for seed in range(40)}
    assert len(placed) == 4


def test_it_is_registered() -> None:
    assert ORACLES["codegen"] is ORACLE


# --- reference trials and their mutants ---------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_spelling_of_the_reference_is_exactly_once(seed: int, level: int) -> None:
    scored = score(reference(seed, level), ORACLE)
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.success


@pytest.mark.parametrize(("seed", "level"), [(0, 0), (1, 3), (2, 4), (3, 5), (4, 5), (5, 5)])
def test_it_finds_all_harm_that_is_planted(seed: int, level: int) -> None:
    assert selftest(ORACLE, reference(seed, level)) == []


def test_both_decompositions_of_the_repeat_occur() -> None:
    batches = {sum("items" in str(e.data) for e in reference(seed, 5).truth) for seed in range(12)}
    assert batches == {0, 1}


def mutants(trial: SealedTrial) -> Iterator[tuple[str, SealedTrial]]:
    """Every effect dropped, doubled, moved to another tenant's names, and given the content of another."""
    places = [n for n, e in enumerate(trial.truth) if e.kind == "effect"]
    foreign = str.maketrans("0123456789", "9012345678")
    for n in places:
        event, rest = trial.truth[n], (trial.truth[:n], trial.truth[n + 1 :])
        moved = json.loads(json.dumps(event.data).translate(foreign))
        other = next(m for m in places if trial.truth[m].data != event.data and m != n)
        name = f"{event.data['boundary']} {n}"
        yield f"{name} dropped", replace(trial, truth=(*rest[0], *rest[1]))
        yield f"{name} doubled", replace(trial, truth=(*rest[0], event, event, *rest[1]))
        yield (
            f"{name} swapped",
            replace(trial, truth=(*rest[0], replace(event, data=trial.truth[other].data), *rest[1])),
        )
        if event.data["boundary"] != "hook":  # the only key without a number
            yield f"{name} moved", replace(trial, truth=(*rest[0], replace(event, data=moved), *rest[1]))


@pytest.mark.parametrize(("seed", "level"), [(0, 3), (3, 5)])
def test_every_mutant_changes_the_findings(seed: int, level: int) -> None:
    trial = reference(seed, level)
    before = score(trial, ORACLE).findings
    survived = [name for name, mutant in mutants(trial) if score(mutant, ORACLE).findings == before]
    assert survived == []


def _first_key_only(effect: dict[str, Json]) -> tuple[str, ...]:
    return ORACLE.natural_keys(effect)[:1]


def _without_streams(effect: dict[str, Json]) -> tuple[str, ...]:
    return tuple(key.replace("stock/", "orders/") for key in ORACLE.natural_keys(effect))


def _by_type_alone(effect: dict[str, Json]) -> tuple[str, ...]:
    subjects = {i.key.rpartition("/")[0]: i.key for i in ORACLE.intents(3, 5) if i.boundary == "transport"}
    return tuple(subjects.get(key.rpartition("/")[0], key) for key in ORACLE.natural_keys(effect))


@pytest.mark.parametrize("keys", [_first_key_only, _without_streams, _by_type_alone])
def test_a_mutated_reader_of_keys_is_caught(keys: Callable[[dict[str, Json]], tuple[str, ...]]) -> None:
    seed = next(n for n in range(20) if "items" in str(reference(n, 5).truth)) if keys is _first_key_only else 3

    class Mutated(type(ORACLE)):  # type: ignore[misc]
        def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
            return keys(effect)

    assert selftest(Mutated(), reference(seed, 5))


# --- how keys are read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "params", "keys"),
    [
        ("INSERT INTO orders (order_ref, sku) VALUES (?, ?)", ["A-1", "x"], ["A-1"]),
        ("insert into orders(sku, order_ref) values (?, ?)", ["x", "A-1"], ["A-1"]),
        ("INSERT INTO orders (sku, order_ref, cents) VALUES (?, 'A-1', 5)", ["x"], ["A-1"]),
        ("INSERT INTO orders (order_ref, sku) VALUES ('O''Hara', ?)", ["x"], ["O'Hara"]),
        ("INSERT INTO orders (sku, order_ref) VALUES (?, ?), (?, ?)", ["x", "A-1", "y", "A-2"], ["A-1", "A-2"]),
        ("INSERT INTO orders (order_ref) VALUES (?), (?)", ["A-1", "A-1"], ["A-1", "A-1"]),
        ("INSERT INTO orders (sku, order_ref) VALUES (lower(?), ?)", ["x", "A-1"], ["A-1"]),
        ("INSERT INTO orders (sku, order_ref) VALUES (:s, :r)", {"r": "A-1", "s": "x"}, ["A-1"]),
        ("INSERT INTO orders (order_ref, sku) SELECT 'A-1' AS r, ?", ["x"], ["A-1"]),
        ('INSERT INTO "ORDERS" ("Order_Ref") VALUES (?)', ["A-1"], ["A-1"]),
        ("INSERT OR IGNORE INTO orders (order_ref) VALUES (?)", ["A-1"], ["A-1"]),
        ("INSERT INTO orders (order_ref) VALUES (?) ON CONFLICT DO NOTHING RETURNING id", ["A-1"], ["A-1"]),
        ("INSERT INTO orders (order_ref, sku) VALUES (?, ?)", [], []),
        ("INSERT INTO orders (sku) VALUES (?)", ["x"], []),
        ("INSERT INTO orders (order_ref) VALUES (upper(?))", ["a-1"], []),
        ("UPDATE orders SET sku = ? WHERE order_ref = ?", ["x", "A-1"], []),
        ("SELECT order_ref FROM orders", [], []),
        ("this is no SQL (", [], []),
    ],
)
def test_keys_of_a_statement(sql: str, params: list | dict, keys: list[str]) -> None:
    call = {
        "boundary": "database",
        "operation": "execute",
        "target": "orders",
        "payload": {"sql": sql, "params": params},
    }
    assert ORACLE.natural_keys(call) == tuple(f"orders.orders/{key}" for key in keys)


@pytest.mark.parametrize(
    "effect",
    [
        {"boundary": "transport", "operation": "XADD", "stream": "orders", "event": "no JSON"},
        {"boundary": "transport", "operation": "XADD", "stream": "orders", "event": {"type": "order.created"}},
        {"boundary": "transport", "operation": "XADD", "target": "orders", "payload": {}},
        {"boundary": "database", "service": "orders", "table": "orders", "row": None, "sql": "DELETE", "params": []},
        {"boundary": "database", "service": "orders", "table": "other", "row": {"id": 1}, "sql": "", "params": []},
        {"boundary": "database", "operation": "execute", "target": "orders", "payload": {}},
        {"boundary": "registry", "package": "meshmoney"},
        {"boundary": "provider", "metadata": None, "model": "small"},
        {"boundary": "provider", "operation": "chat", "target": "small", "payload": {"messages": []}},
        {"boundary": "hook", "operation": "run", "target": "publish_manifest", "payload": {}},
    ],
)
def test_what_cannot_be_recognised_has_no_key(effect: dict[str, Json]) -> None:
    assert ORACLE.natural_keys(effect) == ()


def test_table_names_are_compared_as_the_database_compares_them() -> None:
    row = {"id": 1, "Order_Ref": "A-1", "sku": "x"}
    effect = {"boundary": "database", "service": "orders", "table": "ORDERS", "row": row, "sql": "", "params": []}
    assert ORACLE.natural_keys(effect) == ("orders.orders/A-1",)


def test_package_names_are_compared_as_the_index_compares_them() -> None:
    effect = {"boundary": "registry", "package": "Mesh_Money", "version": "1.2.0", "file": "f"}
    assert ORACLE.natural_keys(effect) == ("mesh-money==1.2.0",)


# --- which files are wanted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*SOURCE_PATH.values(), *SCENARIOS, "manifest"])
def test_every_wanted_file_is_needed(path: str) -> None:
    files = wanted(1)
    del files[f"{facts(1).hook_in}/manifest.json" if path == "manifest" else path]
    assert ORACLE.accepted(1, 3, wanted(1))
    assert not ORACLE.accepted(1, 3, files)


@pytest.mark.parametrize("component", SERVICES)
def test_a_source_with_a_defect_is_not_wanted(component: str) -> None:
    from workloads.codegen import facts as pool

    for defect in getattr(pool, f"{component.upper()}_DEFECTS"):
        broken = SERVICES[component].replace(defect.right, defect.wrong)
        assert broken != SERVICES[component]
        assert not ORACLE.accepted(1, 3, wanted(1) | {SOURCE_PATH[component]: digest(broken)})
