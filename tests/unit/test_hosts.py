"""Several orchestrators on one plan and one store: who runs what, who waits for whom, and what each process counts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arms.mesh.m4_budget import Scope, Spending
from harness.core.errors import ConfigError
from harness.core.roles import Task
from harness.core.seams import Crossings
from harness.core.types import Attempt, DelegationOutcome
from harness.live.child import FileMemory
from harness.orchestrator.delegate import Env
from harness.orchestrator.recover import Share, run_plan
from harness.orchestrator.store import Journal, SqliteStore
from tests.unit.armbench import context
from tests.unit.test_orchestrator import delegation
from workloads.tenants.task import SHARED_HOUSE

ROOT = Path(__file__).resolve().parents[2]
TASK = SHARED_HOUSE.task(0, 3)

# --- who runs what ------------------------------------------------------------------------------------------------


def placed(**hosts: tuple[str, ...]) -> Task:
    return replace(TASK, delegations=(delegation("a"), delegation("b"), delegation("c", "a")), hosts=hosts)


def test_each_host_has_its_share_and_all_of_them_the_plan() -> None:
    assert placed(north=("a",), south=("c", "b")).shares() == {"north": frozenset("a"), "south": frozenset("bc")}
    assert placed().shares() == {"": frozenset("abc")}


@pytest.mark.parametrize(
    "hosts",
    [
        {"north": ("a", "b")},
        {"north": ("a", "b"), "south": ("b", "c")},
        {"north": ("a", "b", "c", "d")},
        {"north": ("a", "a", "b", "c")},
    ],
    ids=["nobody's", "two hosts'", "not in the plan", "twice"],
)
def test_a_delegation_that_is_not_exactly_one_hosts_is_refused(hosts: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ConfigError, match="each once: a, b, c"):
        placed(**hosts).shares()


@pytest.mark.parametrize("name", ["", "a/b", "North", "-"])
def test_a_host_has_a_name_that_a_file_may_have(name: str) -> None:
    with pytest.raises(ConfigError, match="a-z, 0-9"):
        placed(**{name: ("a", "b", "c")}).shares()


# --- who waits for whom -------------------------------------------------------------------------------------------


class House:
    """A store with one `Env` for each host, whose delegations end as `fails` says. asked: pauses of each host."""

    def __init__(self, *, fails: tuple[str, ...] = ()) -> None:
        self.store, self.fails = SqliteStore(":memory:"), fails
        self.asked: dict[str, int] = {}
        self.began: list[str] = []
        self.codes: dict[str, str] = {}

    def env(self) -> Env:
        async def ended(attempt: Attempt) -> DelegationOutcome:
            self.began.append(attempt.delegation.id)
            await asyncio.sleep(0)
            return DelegationOutcome(status="failed" if attempt.delegation.id in self.fails else "done")

        async def never(call: Any) -> Any:
            raise AssertionError("nothing crosses here")

        crossings = Crossings(delegate=ended, model=never, tool=never, effect=never, commit=never)

        def note(kind: str, data: Any) -> None:
            self.codes[data["delegation"]] = data["code"]

        nothing: Any = None
        return Env(crossings=crossings, journal=Journal(self.store), workspaces=nothing, note=note, new_id=str)

    def share(self, host: str, *mine: str, pause: Callable[[], Awaitable[None]] | None = None) -> Share:
        async def counted() -> None:
            self.asked[host] = self.asked.get(host, 0) + 1
            assert self.asked[host] < 100, "it waits for nobody"
            await (pause() if pause else asyncio.sleep(0))

        return Share(mine=frozenset(mine), pause=counted, side_by_side=32)


PLAN = (delegation("a"), delegation("b", "a"), delegation("c", "b"), delegation("z"))


def test_a_host_waits_for_what_another_one_ends() -> None:
    house = House()

    async def both() -> list[dict[str, str]]:
        north = run_plan(house.env(), PLAN, house.share("north", "a", "c", "z"))
        return list(await asyncio.gather(run_plan(house.env(), PLAN, house.share("south", "b")), north))

    ends = asyncio.run(both())
    assert house.began.index("a") < house.began.index("b") < house.began.index("c")
    assert sorted(house.began) == ["a", "b", "c", "z"]
    assert ends[1] == dict.fromkeys("abcz", "done")
    assert min(house.asked["north"], house.asked["south"]) >= 1


def test_a_host_learns_that_a_need_elsewhere_failed() -> None:
    house = House(fails=("a",))

    async def both() -> None:
        south = run_plan(house.env(), PLAN, house.share("south", "b", "c"))
        await asyncio.gather(south, run_plan(house.env(), PLAN, house.share("north", "a", "z")))

    asyncio.run(both())
    assert sorted(house.began) == ["a", "z"]
    assert (house.codes["b"], house.codes["c"]) == ("abandoned", "abandoned")


def test_a_host_ends_when_its_own_share_has_ended_though_others_go_on() -> None:
    house = House()
    ended = asyncio.run(run_plan(house.env(), PLAN, house.share("north", "a", "z")))
    assert ended == {"a": "done", "z": "done"}
    assert Journal(house.store).progress("b").end is None


def test_a_single_host_never_looks_again() -> None:
    house = House()
    asyncio.run(run_plan(house.env(), PLAN, house.share("", "a", "b", "c", "z")))
    assert house.asked == {}
    assert sorted(house.began) == ["a", "b", "c", "z"]


def test_a_host_whose_delegations_all_run_does_not_look_again() -> None:
    house = House()
    asyncio.run(run_plan(house.env(), PLAN, house.share("north", "a")))
    assert house.asked == {}


def test_a_host_that_was_started_again_does_not_run_what_it_ended() -> None:
    house = House()
    share = house.share("north", "a", "z")
    asyncio.run(run_plan(house.env(), PLAN, share))
    asyncio.run(run_plan(house.env(), PLAN, share))
    assert sorted(house.began) == ["a", "z"]


# --- what processes share -----------------------------------------------------------------------------------------


def test_visits_and_firings_are_counted_over_the_processes_of_all_hosts(tmp_path: Path) -> None:
    north, south = FileMemory(tmp_path / "visits"), FileMemory(tmp_path / "visits")
    assert [north.visit(0), south.visit(0), south.visit(1), north.visit(0)] == [1, 2, 1, 3]
    assert (north.fired(0), south.fired(0)) == (0, 0)
    north.fire(0)
    south.fire(10)
    assert (north.fired(0), south.fired(0), south.fired(1), north.fired(10)) == (1, 1, 0, 1)
    assert FileMemory(tmp_path / "visits").visit(0) == 4


WRITER = """
import sys
from harness.orchestrator.store import SqliteStore
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SqliteStore(path)
sys.stdin.readline()
for n in range(count):
    with store.transaction() as db:
        db.execute("INSERT INTO written VALUES (?, ?)", (name, n))
        db.execute("UPDATE total SET n = n + 1")
    store.query("SELECT count(*) FROM written WHERE name=?", (name,))
print("wrote", count)
"""
TRANSACTIONS = 2_000


def test_three_processes_write_two_thousand_times_each_and_nobody_is_locked_out(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqliteStore(str(path))
    with store.transaction() as db:
        db.execute("CREATE TABLE written (name TEXT, n INTEGER, PRIMARY KEY (name, n))")
        db.execute("CREATE TABLE total (n INTEGER)")
        db.execute("INSERT INTO total VALUES (0)")
    pipe = subprocess.PIPE
    hosts = {
        name: subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(TRANSACTIONS)],
            cwd=ROOT,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for name in ("north", "south", "east")
    }
    for process in hosts.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {name: process.communicate() for name, process in hosts.items()}
    assert said == dict.fromkeys(hosts, (f"wrote {TRANSACTIONS}\n", ""))
    assert store.query("SELECT n FROM total") == [(3 * TRANSACTIONS,)]
    found = store.query("SELECT name, count(*), max(n) FROM written GROUP BY name ORDER BY name")
    assert found == [(name, TRANSACTIONS, TRANSACTIONS - 1) for name in sorted(hosts)]


# --- budgets ------------------------------------------------------------------------------------------------------


RUN = Scope("run", "", {"tokens": 1_000})


def spent(store: SqliteStore) -> tuple[int, int]:
    """Tokens of the run that are spent, and that are reserved."""
    (one,) = store.query("SELECT coalesce(sum(spent), 0) FROM spend WHERE scope='run'")
    (held,) = store.query("SELECT coalesce(sum(amount), 0) FROM reservations WHERE scope='run'")
    return one[0], held[0]


def test_a_restart_of_one_host_presumes_nothing_of_another_ones_reservations() -> None:
    store = SqliteStore(":memory:")
    north, south = (Spending(context(store, worker=host)) for host in ("north", "south"))
    assert north.reserve("n1", [RUN], {"tokens": 300}, None) is None
    assert south.reserve("s1", [RUN], {"tokens": 200}, None) is None
    Spending(context(store, worker="north"))
    assert spent(store) == (300, 200)  # north's may have been spent, south's is still under way
    south.settle("s1", {"tokens": 50})
    north.settle("n1", {"tokens": 1})  # of the process before: settled already
    assert spent(store) == (350, 0)


def test_what_hosts_reserve_together_stays_below_one_ceiling() -> None:
    store = SqliteStore(":memory:")
    north, south = (Spending(context(store, worker=host)) for host in ("north", "south"))
    assert north.reserve("n1", [RUN], {"tokens": 600}, None) is None
    assert south.reserve("s1", [RUN], {"tokens": 600}, None) == RUN
    assert south.reserve("s2", [RUN], {"tokens": 400}, None) is None
    assert spent(store) == (0, 1_000)


def test_a_restart_of_one_host_leaves_the_allowances_of_another_as_they_are() -> None:
    store = SqliteStore(":memory:")
    session = {host: Scope("session", f"{host}/1/p", {"turns": 5}) for host in ("north", "south")}
    for host, scope in session.items():
        spending = Spending(context(store, worker=host))
        assert spending.reserve(host, [scope], {"turns": 1}, None) is None
        spending.settle(host, {"turns": 1})
    Spending(context(store, worker="north"))
    assert store.query("SELECT scope, spent FROM spend") == [("session/south/1/p", 1)]
