"""Rounds of a delegation: what counts as getting on, what is paid back, and a credit that is granted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct
from msgspec.structs import replace

from arms.common.defaults import DELEGATION_ATTEMPTS, DELEGATION_PAUSE_MS
from arms.common.retry import RetryDelegation
from arms.mesh import credit, progress, rounds
from arms.mesh.control.breaker import POLICY
from arms.mesh.credit import Book, Row, affordable
from arms.mesh.progress import Progress, Round, constant, declared_words, identifiers, moved
from arms.mesh.rounds import Rounds, Standing, decide
from harness.core.errors import Crash
from harness.core.types import Attempt, Commit, DelegationOutcome, ModelCall, Ok, Outcome, Seam, Site, ToolCall, Verdict
from harness.incidents.layerbench import on_virtual_time
from harness.orchestrator.store import SqliteStore
from harness.world import files
from harness.world.live.world import LiveWorld, Places
from harness.world.sim.world import SimWorld
from tests.unit.armbench import Notes, Time, attempt, context, delegation, model, run, tool

FILE = "tests/test_orders.py"


def failed(*names: str, check: str = "unit", **more: Any) -> Round:
    return Round(failing={check: frozenset(names)}, **more)


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"{FILE}::{name}" for name in names)


# --- whether a round got on ---------------------------------------------------------------------------------------

CRASH = failed(FILE)
FIVE, TWO = failed(*ids("a", "b", "c", "d", "e")), failed(*ids("d", "e"))


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ([], CRASH, "unknown"),
        ([CRASH], CRASH, "unknown"),  # the file of a check that cannot even start tells nothing
        ([CRASH], FIVE, "moved"),
        ([CRASH, FIVE], TWO, "moved"),
        ([CRASH, FIVE], FIVE, "stuck"),
        ([FIVE], FIVE, "stuck"),
        ([FIVE, TWO], FIVE, "stuck"),  # back where it was
        ([TWO], FIVE, "stuck"),  # the same and more
        ([TWO], failed(*ids("f")), "moved"),
        ([], TWO, "unknown"),  # nothing to compare with
        ([failed()], TWO, "moved"),
        ([failed("unit")], failed("unit"), "unknown"),  # a check's own name
        ([TWO], failed(*ids("d", "e"), accepted=("test_design",)), "moved"),
        ([TWO], failed(*ids("d", "e"), unusable="it contradicts itself"), "unknown"),
        ([failed(*ids("d", "e"), unusable="flaky")], TWO, "unknown"),  # what was no evidence then is none now
        ([failed("t1", "o1", declared=frozenset({"o1"}))], failed("t1", "o1"), "stuck"),
        ([failed("o1", declared=frozenset({"o1"}))], failed("o1"), "unknown"),
    ],
)
def test_a_round_got_on_when_it_failed_otherwise_than_before(before: list[Round], now: Round, kind: str) -> None:
    assert moved(before, now).kind == kind


def test_what_every_round_repeats_is_left_out_and_said() -> None:
    said = moved([failed("unit", *ids("a", "b"))], failed("unit", FILE, *ids("b")))
    assert (said.kind, said.evidence, said.constant) == ("moved", ids("b"), (FILE, "unit"))


def test_constant_words_need_every_round_and_the_declaration() -> None:
    here = frozenset({"orders"})
    assert constant([failed("orders", declared=here), failed("orders", "x", declared=here)]) == {"unit", "orders"}
    assert constant([failed("orders", declared=here), failed("x", declared=here)]) == {"unit"}
    assert constant([failed("orders"), failed("orders")]) == {"unit"}
    assert constant([failed("orders", declared=here)]) == {"unit"}  # one round repeats nothing


def test_ids_in_words_are_those_of_tests() -> None:
    assert identifiers("24 turns, tests/a.py::test_x[1] and (b.mjs::blurb); see /tmp/w/3 or c0.1") == {
        "tests/a.py::test_x[1]",
        "b.mjs::blurb",
    }


def test_a_declaration_names_itself_and_its_parts() -> None:
    assert {"d", "p", "flow", "orders", "notify", "XADD"} <= declared_words(delegation())


# --- what follows -------------------------------------------------------------------------------------------------

MOVED, STUCK, UNKNOWN = (Progress(kind=kind, because="x") for kind in ("moved", "stuck", "unknown"))
FAILED = DelegationOutcome(status="failed", code="agent-blocked")
STALLED = DelegationOutcome(status="stopped", code="stalled", because="a circle", verdict=Verdict.STALLED)
EXHAUSTED = DelegationOutcome(status="stopped", verdict=Verdict.EXHAUSTED)
FENCED = DelegationOutcome(status="stopped", verdict=Verdict.FENCED)


@pytest.mark.parametrize(
    ("outcome", "said", "at", "more", "what"),
    [
        (FAILED, UNKNOWN, {}, {}, "again"),
        (FAILED, UNKNOWN, {"counted": 4}, {}, "end"),
        (FAILED, MOVED, {"counted": 4}, {}, "refund"),
        (FAILED, MOVED, {"counted": 4}, {"refund": False}, "end"),
        (FAILED, MOVED, {"total": 8}, {}, "ceiling"),
        (FAILED, STUCK, {"stuck": 1}, {}, "again"),
        (FAILED, STUCK, {"stuck": 2}, {}, "graded"),
        (FAILED, UNKNOWN, {"stuck": 2}, {}, "again"),  # no decision on no evidence
        (FAILED, STUCK, {"stuck": 2}, {"stall": False}, "again"),
        (FAILED, STUCK, {"stuck": 1, "counted": 4}, {}, "end"),
        (FAILED, UNKNOWN, {"granted": True}, {}, "graded"),  # the second stop
        (FAILED, MOVED, {"granted": True}, {}, "refund"),
        (STALLED, MOVED, {}, {}, "graded"),
        (EXHAUSTED, STUCK, {}, {}, "end"),
        (EXHAUSTED, STUCK, {}, {"lendable": True}, "graded"),
        (FENCED, STUCK, {"stuck": 2}, {"lendable": True}, "end"),
    ],
)
def test_what_follows_a_round(outcome: DelegationOutcome, said: Progress, at: dict, more: dict, what: str) -> None:
    standing = Standing(**({"total": 2, "counted": 2, "stuck": 0, "granted": False} | at))
    assert decide(outcome, said, standing, **more) == what


@pytest.mark.parametrize(
    ("component", "total", "stops", "short"),
    [(0, 0, 0, ""), (1, 1, 0, "component"), (0, 3, 0, "run"), (0, 2, 0, ""), (0, 0, 6, "run")],
)
def test_credit_is_short_by_scope(component: int, total: int, stops: int, short: str) -> None:
    assert affordable(component, total, stops) == short


# --- the layer ----------------------------------------------------------------------------------------------------


class Try(Struct):
    """What one attempt does: the tests that fail in it, and how it ends."""

    fails: tuple[str, ...] = ()
    outcome: DelegationOutcome = FAILED
    accepts: bool = False


class Talk:
    """A delegation whose attempts go as listed, the last for ever."""

    def __init__(self, tries: Sequence[Try], store: Any = None, **more: Any) -> None:
        self.notes, self.time, self.tries = Notes(), Time(), list(tries)
        self.store = store or SqliteStore(":memory:")
        self.layer = Rounds(context(self.store, note=self.notes, time=self.time), **more)
        self.seen: list[Attempt] = []
        self.models: list[str] = []

    async def inside(self, asked: Attempt) -> DelegationOutcome:
        self.seen.append(asked)
        plays = self.tries[min(len(self.seen), len(self.tries)) - 1]
        d, number = asked.delegation.id, asked.number

        async def answer(call: ModelCall) -> Outcome:
            self.models.append(call.request["model"])
            return Ok(value={})

        async def check(call: ToolCall) -> Outcome:
            return Ok(value={"passed": not plays.fails, "failing": list(plays.fails)})

        async def publish(call: Commit) -> Outcome:
            return Ok(value={})

        await self.layer.on_model(model({"model": "scripted"}, d, attempt=number), answer)
        await self.layer.on_tool(tool("run_check", d, attempt=number, args={"check": "unit"}), check)
        if plays.accepts:
            site = Site(delegation=d, phase="p", seam=Seam.COMMIT, name="publish")
            call = Commit(site=site, call_id="c", attempt=number, step="publish", changes={})
            await self.layer.on_commit(call, publish)
        return plays.outcome

    def play(self, asked: Attempt | None = None) -> DelegationOutcome:
        return run(self.layer.on_delegate(asked or attempt(), self.inside))

    def decisions(self) -> list[tuple[str, str]]:
        return [(told["scope"], told["decision"]) for _, told in self.notes]


GOOD = Try(outcome=DelegationOutcome(status="done"))


def test_a_repair_that_converges_is_not_stopped_and_costs_what_it_did_not_move() -> None:
    """A crash, then five failing tests, then two of these."""
    talk = Talk([Try((FILE,)), Try(ids("a", "b", "c", "d", "e")), Try(ids("d", "e")), GOOD])
    assert talk.play().status == "done"
    assert talk.decisions() == [("fingerprint", d) for d in ("withheld", "continue", "continue")]
    kinds = talk.store.query("SELECT kind, counted FROM rounds ORDER BY number")
    assert kinds == [("first", 1), ("again", 0), ("refund", 0), ("refund", 1)]


def test_a_repair_that_moves_slowly_gets_more_rounds_than_one_that_does_not() -> None:
    slow = [Try(ids(*(f"t{i}" for i in range(7 - n)))) for n in range(6)]
    talk = Talk([*slow, GOOD])
    assert talk.play().status == "done"
    assert len(talk.seen) == 7 > DELEGATION_ATTEMPTS


def test_a_repair_that_stands_still_is_stopped_after_one_round_on_a_stronger_model() -> None:
    talk = Talk([Try(ids("a", "b"))])
    ended = talk.play()
    assert (ended.status, ended.verdict) == ("stopped", Verdict.STALLED)
    assert talk.models == ["scripted", "scripted", "scripted", "scripted-large"]
    assert talk.decisions() == [
        ("fingerprint", "withheld"),
        ("fingerprint", "continue"),
        ("fingerprint", "trip"),
        ("component", "grant"),
        ("fingerprint", "trip"),
        ("component", "trip"),
    ]
    assert talk.notes[2][1]["evidence"] == list(ids("a", "b"))


def test_a_session_that_was_stopped_is_granted_one_round_and_told_why() -> None:
    talk = Talk([Try(outcome=STALLED)])
    ended = talk.play()
    assert (ended.status, ended.verdict) == ("stopped", Verdict.STALLED)
    assert talk.seen[1].notes == ("stalled: a circle",)
    assert talk.models == ["scripted", "scripted-large"]
    assert talk.decisions() == [("component", "grant"), ("component", "trip")]
    saved = Talk([Try(outcome=STALLED), GOOD])
    assert saved.play().status == "done"


@pytest.mark.parametrize("outcome", [EXHAUSTED, FENCED])
def test_what_another_primitive_stopped_stays_stopped_with_its_own_verdict(outcome: DelegationOutcome) -> None:
    talk = Talk([Try(outcome=outcome)])
    assert talk.play() is outcome
    assert len(talk.seen) == 1


def test_an_allowance_that_is_used_up_buys_one_round_on_credit_and_then_ends_as_exhausted() -> None:
    class Lattice:
        def __init__(self) -> None:
            self.told: list[str] = []

        def failing(self, delegation: str, fingerprint: str) -> None:
            self.told.append(fingerprint)

        def granted(self, delegation: str) -> None:
            self.told.append("granted")

        def lendable(self, delegation: str) -> bool:
            return True

    lattice = Lattice()
    talk = Talk([Try(outcome=EXHAUSTED)], budget=lattice)
    ended = talk.play()
    assert (ended.status, ended.verdict, len(talk.seen)) == ("stopped", Verdict.EXHAUSTED, 2)
    assert lattice.told[1] == "granted"


def test_without_both_primitives_rounds_are_the_retry_of_every_arm() -> None:
    tries = [Try(ids("a"))]
    talk, time = Talk(tries, stall=False, refund=False), Time()
    base, most = DELEGATION_PAUSE_MS
    plain = RetryDelegation(context(time=time), attempts_max=DELEGATION_ATTEMPTS, base_ms=base, max_ms=most)

    async def inside(asked: Attempt) -> DelegationOutcome:
        return FAILED

    assert talk.play() == run(plain.on_delegate(attempt(), inside)) == FAILED
    assert talk.time.slept == time.slept
    assert [a.notes for a in talk.seen][-1] == ("agent-blocked",) * 3


def test_a_round_without_evidence_is_an_ordinary_retry() -> None:
    talk = Talk([Try(outcome=DelegationOutcome(status="failed", code="http-503"))])
    assert talk.play().code == "http-503"
    assert len(talk.seen) == DELEGATION_ATTEMPTS


def test_evidence_in_quarantine_neither_stops_nor_pays_back() -> None:
    class Quarantine:
        def quarantined(self, delegation: str) -> str | None:
            return "it contradicts itself"

    talk = Talk([Try(ids("a")), Try(ids("b"))], observations=Quarantine())
    assert talk.play() is FAILED
    assert {d for _, d in talk.decisions()} == {"withheld"}
    assert len(talk.seen) == DELEGATION_ATTEMPTS


@pytest.mark.parametrize(("code", "draft"), [("agent-blocked", 1), ("arm-error", None)])
def test_a_retry_starts_from_the_draft_unless_that_is_suspect(code: str, draft: int | None) -> None:
    talk = Talk([Try(outcome=DelegationOutcome(status="failed", code=code)), GOOD])
    talk.play()
    assert [a.draft for a in talk.seen] == [None, draft]


def test_rounds_that_move_for_ever_end_at_the_ceiling_also_after_a_restart() -> None:
    def anew(n: int) -> Try:
        return Try(ids(f"t{n}"))

    most = POLICY.rounds.rounds_max
    talk = Talk([anew(n) for n in range(99)])
    ended = talk.play()
    assert (ended.status, ended.verdict, len(talk.seen)) == ("stopped", Verdict.EXHAUSTED, most)
    late = Talk([GOOD], talk.store).play(attempt(number=most + 1))
    assert late.verdict is Verdict.EXHAUSTED


def test_a_component_has_one_credit_and_the_run_has_few() -> None:
    store = SqliteStore(":memory:")
    ends = {}
    for n, component in enumerate(["orders", "orders", "stock", "shop", "mail"]):
        talk = Talk([Try(outcome=STALLED)], store)
        talk.play(attempt(f"d{n}", component=component))
        ends[n] = (len(talk.seen), talk.decisions()[-1])
    granted = (2, ("component", "trip"))
    assert ends == {0: granted, 1: (1, ("component", "trip")), 2: granted, 3: granted, 4: (1, ("run", "trip"))}


def test_a_granted_round_is_the_same_after_a_crash() -> None:
    """The credit and the attempt are one record: the model, the files and the words are there again."""
    talk = Talk([Try(outcome=STALLED), Try()])

    async def dies(asked: Attempt) -> DelegationOutcome:
        if asked.number == 2:
            raise Crash
        return await talk.inside(asked)

    with pytest.raises(Crash):
        run(talk.layer.on_delegate(attempt(), dies))
    again = Talk([Try(outcome=STALLED)], talk.store)
    ended = again.play(attempt(number=2))
    assert (ended.verdict, again.models) == (Verdict.STALLED, ["scripted-large"])
    assert (again.seen[0].notes, again.seen[0].draft) == (("stalled: a circle",), 1)
    assert talk.store.query("SELECT count(*) FROM credits") == [(1,)]


def test_how_often_it_stood_still_is_forgotten_on_resume_and_what_it_spent_is_not() -> None:
    store = SqliteStore(":memory:")

    class Dies(Talk):
        async def inside(self, asked: Attempt) -> DelegationOutcome:
            if len(self.seen) == 2:
                raise Crash
            return await super().inside(asked)

    with pytest.raises(Crash):
        Dies([Try(ids("a"))], store).play()
    again = Talk([Try(ids("a"))], store)
    assert again.play(attempt(number=3)) is FAILED  # rounds 3 and 4 are its last two of four, and no stall
    assert len(again.seen) == 2
    assert Book(context(store)).counted("d") == DELEGATION_ATTEMPTS


# --- crashes at any point -----------------------------------------------------------------------------------------


COMPONENT = {"a": "orders", "b": "orders", "c": "stock"}


class CreditMachine(RuleBasedStateMachine):
    """Processes that come and go, also two at a time, and pay for rounds of two delegations of one component and one
    of another."""

    @initialize()
    def start(self) -> None:
        self.store = SqliteStore(":memory:")
        self.books = [Book(context(self.store)), Book(context(self.store))]
        self.told: dict[tuple[str, int], str] = {}  # what each round was said to be, once it was said

    def following(self, d: str, kind: str) -> Row:
        (last,) = self.store.query("SELECT coalesce(max(number), 0) FROM rounds WHERE delegation=?", (d,))[0]
        return Row(delegation=d, number=last + 1, kind=kind, counted=kind != "granted", model="m")

    @rule(d=st.sampled_from("abc"), which=st.integers(0, 1), dies=st.booleans(), twice=st.booleans())
    def grant(self, d: str, which: int, dies: bool, twice: bool) -> None:
        row = self.following(d, "granted")
        before = self.counts()
        for book in self.books if twice else [self.books[which]]:
            if not dies:
                book.grant(row, COMPONENT[d], 0)
                continue
            self.store.before_commit = self._dead
            with pytest.raises(Crash):
                book.grant(row, COMPONENT[d], 0)
            self.store.before_commit = lambda: None
        if dies:
            assert self.counts() == before  # neither the round nor its credit
            self.restart()

    @rule(d=st.sampled_from("abc"), which=st.integers(0, 1), paid_back=st.booleans())
    def spend(self, d: str, which: int, paid_back: bool) -> None:
        row = self.following(d, "again")
        self.books[which].spend(row, paid_back=paid_back and row.number > 1)

    @rule()
    def restart(self) -> None:
        self.books = [Book(context(self.store)), self.books[0]]

    def _dead(self) -> None:
        raise Crash

    def counts(self) -> tuple:
        return tuple(self.store.query(f"SELECT count(*) FROM {table}")[0][0] for table in ("rounds", "credits"))

    @invariant()
    def credit_is_granted_once_and_with_its_round(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = self.store.query("SELECT component, delegation, number FROM credits")
        for component in ("orders", "stock"):
            assert sum(c == component for c, _, _ in rows) <= POLICY.graded.component_grants_max
        granted = self.store.query("SELECT delegation, number FROM rounds WHERE kind='granted'")
        assert sorted(granted) == sorted((d, n) for _, d, n in rows)


def attempts(most: int, **more: Any) -> settings:
    fixed: dict[str, Any] = {"deadline": None, "derandomize": True, "database": None}
    return settings(max_examples=most, suppress_health_check=list(HealthCheck), **fixed, **more)


def test_no_credit_is_granted_twice_whoever_dies_when() -> None:
    run_state_machine_as_test(CreditMachine, settings=attempts(60))


def in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """The round is written first, and its credit in a transaction of its own."""
    granted = Book.grant

    def torn(self: Book, row: Row, component: str, run_stops: int) -> str:
        before = self._store.before_commit  # type: ignore[attr-defined]
        self._store.before_commit = lambda: None  # type: ignore[attr-defined]
        self.spend(row)
        self._store.before_commit = before  # type: ignore[attr-defined]
        return granted(self, row, component, run_stops)

    patch.setattr(Book, "grant", torn)


def for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(credit, "affordable", lambda component, total, stops: "")


@pytest.mark.parametrize("mutate", [in_two_steps, for_everybody])
def test_a_credit_without_its_guard_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CreditMachine, settings=attempts(200, phases=[Phase.generate]))


# --- guards -------------------------------------------------------------------------------------------------------


def by_name(one: Round) -> frozenset[str]:
    """A fingerprint over the names of the failing checks."""
    return frozenset(check for check, ids in one.failing.items() if ids)


def judged_by_name(before: Sequence[Round], now: Round) -> Progress:
    """How it was judged before the incident: the same check fails, so nothing has moved."""
    return STUCK if any(by_name(past) == by_name(now) for past in before) else UNKNOWN


def test_a_fingerprint_over_names_stops_a_repair_that_converges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The incident: converging rounds look alike; and with the filter there would be nothing to decide on."""
    converging = [Try((FILE,)), Try(ids("a", "b", "c", "d", "e")), Try(ids("d", "e")), Try(ids("d")), GOOD]
    assert Talk(converging).play().status == "done"
    monkeypatch.setattr(progress, "evidence_of", by_name)
    assert {d for _, d in _played(converging).decisions()} == {"withheld"}
    monkeypatch.setattr(rounds, "moved", judged_by_name)
    talk = _played(converging[:3])
    assert (talk.decisions()[2], len(talk.seen)) == (("fingerprint", "trip"), 4)


def test_without_the_filter_a_check_that_cannot_start_is_taken_for_standing_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashing = [Try((FILE,))] * 4
    assert {d for _, d in _played(crashing).decisions()} == {"withheld"}
    monkeypatch.setattr(progress, "constant", lambda rounds: frozenset())
    assert ("fingerprint", "trip") in _played(crashing).decisions()


def _played(tries: Iterable[Try]) -> Talk:
    talk = Talk(list(tries))
    talk.play()
    return talk


def test_without_their_own_verdicts_three_ends_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (STALLED, EXHAUSTED, FENCED)
    assert [Talk([Try(outcome=end)]).play().verdict for end in ends] == [end.verdict for end in ends]
    monkeypatch.setattr(rounds, "told_apart", lambda what, outcome, said, n: FAILED)
    assert [Talk([Try(outcome=end)]).play().verdict for end in ends] == [None] * 3


def test_without_the_judgement_of_progress_nothing_that_stands_still_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "moved", lambda before, now: MOVED)
    talk = Talk([Try(ids("a"))])
    assert talk.play().verdict is Verdict.EXHAUSTED
    assert len(talk.seen) == POLICY.rounds.rounds_max


# --- drafts -------------------------------------------------------------------------------------------------------


def test_a_draft_brings_its_own_files_and_leaves_those_of_others() -> None:
    work = files.MemoryFiles({"d/a": "old", "d/gone": "x", "e/b": "accepted since"})
    files.overlay(work, files.MemoryFiles({"d/a": "new", "d/c": "more", "e/b": "stale", "top": "x"}), ("d/**",))
    assert work.files == {"d/a": "new", "d/c": "more", "e/b": "accepted since"}


def _begun(world: Any, number: int, draft: int | None = None) -> Attempt:
    asked = replace(attempt(number=number), draft=draft)
    on_virtual_time(world.begin(asked))
    return asked


@pytest.mark.parametrize("contained", [True, False])
def test_a_retry_begins_with_the_files_of_its_draft_where_attempts_are_contained(
    contained: bool, tmp_path: Any
) -> None:
    """In both worlds. Without containment there is one tree, which is what it is."""
    arm = SimpleNamespace(contained=contained, variation_stream=0)
    sim = SimWorld(SimpleNamespace(files={"a.py": "old"}, tables={}), None, arm, None)  # type: ignore[arg-type]
    parts: dict[str, Any] = dict.fromkeys(("task", "upstreams", "ns", "control", "runner", "truth", "clock"))
    live = LiveWorld(contained=contained, places=Places(tmp_path), **parts)
    for root in (live._places.accepted, live._places.shared):
        files.DiskFiles(root).put("a.py", "old")
    for world, tree in (
        (sim, lambda n: sim._tree("d", n)),
        (live, lambda n: files.DiskFiles(live._tree("d", n))),
    ):
        _begun(world, 1)
        tree(1).put("a.py", "drafted")
        _begun(world, 2, draft=1)
        assert tree(2).get("a.py") == "drafted"
        _begun(world, 3)
        assert tree(3).get("a.py") == ("old" if contained else "drafted")
        _begun(world, 4, draft=9)  # whose files are not there
        assert tree(4).get("a.py") == ("old" if contained else "drafted")
