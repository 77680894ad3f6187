"""Effect accounting, on trials built by hand and a toy oracle: every class of finding, and the test of the testers."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from msgspec.structs import replace

from harness import score as scoring
from harness.core.errors import ConfigError, HarnessBug
from harness.core.records import Event, Finding, Intent, ScoredTrial, SealedTrial, TrialRecord
from harness.core.types import Json
from harness.score import score, score_run, selftest
from harness.trace_store import TraceStore

GOOD = {"app.py": "0123abcd"}


class Toy:
    """An oracle whose effects say their keys aloud, in the field `names`."""

    def __init__(self, *intents: Intent) -> None:
        self._intents = intents

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        return self._intents

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        return tuple(effect.get("payload", effect)["names"])

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return files == GOOD


def want(key: str, required: int = 1, boundary: str = "transport", delegation: str = "d", phase: str = "p") -> Intent:
    return Intent(boundary=boundary, key=key, required=required, delegation=delegation, phase=phase)


class Build:
    """Writes the two logs of a trial by hand; time goes on by 1 ms with every event."""

    def __init__(self, attempt: int = 1) -> None:
        self.trace: list[Event] = []
        self.truth: list[Event] = []
        self.attempt, self.epoch, self._n = attempt, 0, 0

    def note(self, kind: str, **data: Json) -> None:
        self.trace.append(self._event(kind, data))

    def really(self, kind: str, **data: Json) -> None:
        self.truth.append(self._event(kind, data))

    def _event(self, kind: str, data: dict[str, Json]) -> Event:
        self._n += 1
        return Event(self._n, float(self._n), self.epoch, kind, data)

    def ask(
        self,
        *names: str,
        boundary: str = "transport",
        crossed: int = 1,
        commits: int = 1,
        said: str = "ok",
        receipt: str | None = "",
    ) -> None:
        """One effect call: it comes out of the arm `crossed` times and happens `commits` times."""
        call_id = f"c{self._n}"
        where = {"delegation": "d", "phase": "p"}
        call = {"call": "effect", "call_id": call_id, "site": {**where, "seam": "S2", "name": boundary}}
        call |= {"attempt": self.attempt, "turn": 0, "index": 0, "ordinal": 0, "cause": "t", "origin": "check"}
        payload = {"names": list(names)}
        self.note("call", **call, boundary=boundary, operation="put", target="x", payload=payload)
        for _ in range(crossed):
            self.really("crossed", call_id=call_id, boundary=boundary, attempt=self.attempt, **where)
        held = None
        for _ in range(commits):
            held = f"r{self._n}"
            self.really("effect", boundary=boundary, names=list(names), receipt=held)
        if said:
            verdict = {"ok": "executed", "refused": "fenced"}.get(said)
            told = receipt if receipt != "" else (held if said == "ok" else None)
            self.note("outcome", call_id=call_id, result=said, verdict=verdict, code="", definite=True, receipt=told)

    def checkpoint(self, files: dict[str, str] | None = None, delegation: str = "d") -> None:
        held = GOOD if files is None else files
        self.note("checkpoint", delegation=delegation, attempt=self.attempt, phase="p", files=held)

    def seal(self, status: str = "done", **record: Json) -> SealedTrial:
        self.checkpoint()
        self.note("delegation_end", delegation="d", status=status, code="", verdict=None)
        fields = dict(id="t", pair="q", index=0, workload="toy", arm="naive", world="sim", seed=1, variation=3)
        fields |= dict(fault_class="x", variant="y", faults_scheduled=0, status="ended")
        return SealedTrial(record=TrialRecord(**{**fields, **record}), trace=tuple(self.trace), truth=tuple(self.truth))


def only(trial: SealedTrial, *intents: Intent) -> Finding:
    (finding,) = score(trial, Toy(*intents)).findings
    return finding


def numbers(f: Finding) -> tuple[int, int, int, str]:
    return f.observed, f.duplicated, f.lost, f.status


def test_exactly_once() -> None:
    b = Build()
    b.ask("k")
    found = only(b.seal(), want("k"))
    assert found == Finding(
        boundary="transport", key="k", required=1, observed=1, duplicated=0, lost=0, stale=0, delegation="d"
    )


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (1, (1, 0, 1, "never_attempted")),
        (2, (2, 0, 0, "exactly_once")),
        (3, (3, 1, 0, "duplicate")),
        (9, (9, 2, 0, "duplicate")),  # at most as many as were intended
    ],
)
def test_a_legitimate_repeat_is_no_duplicate(times: int, expected: tuple) -> None:
    b = Build()
    for _ in range(times):
        b.ask("k")
    assert numbers(only(b.seal(), want("k", required=2))) == expected


@pytest.mark.parametrize(
    ("status", "how"),
    [
        ("never_attempted", None),
        ("wrongly_merged", dict(crossed=0, commits=0, said="ok", receipt="other")),
        ("over_suppressed_silent", dict(crossed=0, commits=0, said="ok")),
        ("over_suppressed_silent", dict(crossed=0, commits=0, said="ok", receipt="nobody's")),
        ("false_reject", dict(crossed=0, commits=0, said="err")),
        ("false_reject", dict(crossed=0, commits=0, said="refused")),
        ("lost_in_flight", dict(crossed=1, commits=0, said="err")),
        ("lost_in_flight", dict(crossed=1, commits=0, said="ok")),
        ("lost_in_flight", dict(crossed=3, commits=0, said="ok", receipt="other")),
        ("lost_in_flight", dict(crossed=0, commits=0, said="")),  # the process died within the arm
    ],
)
def test_every_loss_has_one_class(status: str, how: dict | None) -> None:
    b = Build()
    b.ask("other")
    b.truth[-1] = replace(b.truth[-1], data={**b.truth[-1].data, "receipt": "other"})
    if how is not None:
        b.ask("k", **how)
    found = score(b.seal(), Toy(want("k"), want("other"))).findings
    assert [numbers(f) for f in found] == [(0, 0, 1, status), (1, 0, 0, "exactly_once")]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (dict(crossed=0, commits=0, said="ok"), "over_suppressed_silent"),
        (dict(crossed=0, commits=0, said="refused"), "false_reject"),
        (dict(crossed=1, commits=0, said="err"), "lost_in_flight"),
    ],
)
def test_the_second_of_two_may_be_lost(how: dict, status: str) -> None:
    """The first went through and its caller was told ok; that says nothing about the second."""
    b = Build()
    b.ask("k")
    b.ask("k", **how)
    assert numbers(only(b.seal(), want("k", required=2))) == (1, 0, 1, status)


def test_an_effect_whose_retry_was_suppressed_is_not_lost() -> None:
    b = Build()
    b.ask("k", said="err")
    b.ask("k", crossed=0, commits=0, receipt="r3")
    assert numbers(only(b.seal(), want("k"))) == (1, 0, 0, "exactly_once")


def test_foreign_receipts_are_counted_even_where_nothing_is_lost() -> None:
    b = Build()
    b.ask("k")
    mine = b.truth[-1].data["receipt"]
    b.ask("other", receipt=mine)
    b.ask("other", crossed=0, commits=0, receipt=b.truth[-1].data["receipt"])
    trial = b.seal()
    scored = score(trial, Toy(want("k"), want("other")))
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.trial.trace[-1].data == {"kind": "score", "foreign_receipts": 1}
    assert scored.trial.trace[:-1] == trial.trace


def test_receipts_of_two_boundaries_do_not_meet() -> None:
    b = Build()
    b.ask("k", boundary="database")
    b.ask("k", crossed=0, commits=0, receipt=b.truth[-1].data["receipt"])
    found = score(b.seal(), Toy(want("k"), want("k", boundary="database"))).findings
    assert [f.status for f in found] == ["over_suppressed_silent", "exactly_once"]


@pytest.mark.parametrize(
    ("attempts", "stale"),
    [([1, 1], 0), ([1, 2], 1), ([1, 2, 2], 1), ([1, 1, 2], 2), ([1, 1, 1], 0), ([1], 0)],
)
def test_stale_duplicates_come_from_superseded_attempts(attempts: list[int], stale: int) -> None:
    b = Build()
    for b.attempt in attempts:
        b.ask("k")
    found = only(b.seal(), want("k"))
    assert (found.observed, found.stale) == (len(attempts), stale)


def test_stale_by_an_earlier_process_of_the_same_attempt() -> None:
    b = Build()
    b.ask("k", said="")
    b.epoch = 1
    b.ask("k")
    assert only(b.seal(), want("k")).stale == 1


def test_a_lost_acknowledgement_is_laid_at_the_right_door() -> None:
    """Attempt 1 sends twice: the first request is lost on its way, so the one durable effect is the second's."""
    b = Build(attempt=1)
    b.ask("k", crossed=1, commits=0, said="err")
    b.attempt = 2
    b.ask("k", crossed=2, commits=2)
    assert (only(b.seal(), want("k")).stale, only(b.seal(), want("k")).duplicated) == (0, 1)


def test_phantoms_and_effects_without_a_key() -> None:
    b = Build()
    b.ask("k")
    b.ask("acme2/k")
    b.ask("acme2/k")
    b.really("effect", boundary="database", names=[], receipt=None)
    found = score(b.seal(), Toy(want("k"))).findings
    assert [(f.boundary, f.key, f.required, *numbers(f)) for f in found] == [
        ("transport", "k", 1, 1, 0, 0, "exactly_once"),
        ("database", "", 0, 1, 0, 0, "phantom"),
        ("transport", "acme2/k", 0, 2, 0, 0, "phantom"),
    ]
    assert [f.delegation for f in found] == ["d", "", "d"]


def test_a_batch_is_all_of_its_effects() -> None:
    b = Build()
    b.ask("k", "k", "m")
    b.ask("m")
    found = score(b.seal(), Toy(want("k", required=2), want("m"))).findings
    assert [numbers(f) for f in found] == [(2, 0, 0, "exactly_once"), (2, 1, 0, "duplicate")]


def test_several_rows_of_one_statement_are_several_effects_of_one_call() -> None:
    b = Build()
    b.ask("k", "m", commits=0, receipt="r-k")
    b.really("effect", boundary="transport", names=["k"], receipt="r-k")
    b.really("effect", boundary="transport", names=["m"], receipt="r-m")
    scored = score(b.seal(), Toy(want("k"), want("m")))
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.trial.trace[-1].kind != "note"


def test_an_oracle_that_names_a_key_twice_breaks_the_conservation() -> None:
    b = Build()
    b.ask("k")
    with pytest.raises(HarnessBug, match="not the sum"):
        score(b.seal(), Toy(want("k"), want("k")))


def test_a_call_that_an_arm_made_up_is_nobodys() -> None:
    b = Build()
    b.really("crossed", call_id="forged", boundary="transport", delegation="d", phase="p", attempt=1)
    b.really("effect", boundary="transport", names=["k"], receipt="r")
    assert only(b.seal(), want("k")).status == "exactly_once"


# --- the rest of a scored trial -----------------------------------------------------------------------------------


def test_verdicts_are_counted_over_outcomes_and_ends() -> None:
    b = Build()
    b.ask("k")
    b.ask("k", crossed=0, commits=0, said="refused")
    b.ask("k", commits=0, said="err")
    b.note("delegation_end", delegation="d", status="failed", code="x", verdict="exhausted-budget")
    scored = score(b.seal(), Toy(want("k")))
    assert scored.verdicts == {"executed": 1, "exhausted-budget": 1, "fenced": 1}


@pytest.mark.parametrize(("scheduled", "fired", "exposed"), [(0, [], False), (2, [0, 0], False), (2, [0, 1], True)])
def test_exposed_means_that_every_scheduled_fault_fired(scheduled: int, fired: list[int], exposed: bool) -> None:
    b = Build()
    for fault in fired:
        b.really("fault", fault=fault, state="fired", **{"class": "hung_check"}, delegation="d")
    b.really("fault", fault=1, state="expired", **{"class": "hung_check"}, delegation="d")
    assert score(b.seal(faults_scheduled=scheduled), Toy()).exposed is exposed


def test_success_needs_every_delegation_and_the_wanted_files() -> None:
    def scored(status: str = "done", files: dict | None = None, other: str = "", intent: str = "d") -> ScoredTrial:
        b = Build()
        if other:
            b.note("attempt", delegation="e", attempt=1, resumed=False)
            b.note("delegation_end", delegation="e", status=other, code="", verdict=None)
        trial = b.seal(status)
        if files is not None:
            b.checkpoint(files)
            trial = replace(trial, trace=tuple(b.trace))
        return score(trial, Toy(want("k", delegation=intent)))

    assert scored().success
    assert scored(other="done").success
    assert not scored("failed").success
    assert not scored(other="failed").success
    assert not scored(intent="never started").success
    assert not scored(files={"app.py": "other"}).success
    assert not scored(files={}).success


def test_an_invalid_trial_is_passed_through() -> None:
    b = Build()
    b.ask("k")
    trial = b.seal(status="done")
    trial = replace(trial, record=replace(trial.record, status="invalid"))
    scored = score(trial, Toy(want("k")))
    assert scored.trial is trial
    assert (scored.findings, scored.verdicts, scored.success, scored.work.billed) == ((), {}, False, 0)


def test_a_run_is_judged_in_order_and_written_down(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(scoring.ORACLES, "toy", Toy(want("k"), want("m")))
    b = Build()
    b.ask("k")
    sealed = [b.seal(id=f"{arm}{i}", pair=f"q{i}", index=i, arm=arm) for i in (1, 0) for arm in ("naive", "mesh")]
    with TraceStore.create(tmp_path / "run", {}) as store:
        for trial in sealed:
            store.seal(trial.record, trial.trace, trial.truth)
    scored = list(score_run(tmp_path / "run"))
    assert [s.trial.record.id for s in scored] == ["mesh0", "naive0", "mesh1", "naive1"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "findings.jsonl").read_text().splitlines()]
    assert [(x["trial"], x["pair"], x["arm"], x["key"], x["lost"]) for x in lines[:3]] == [
        ("mesh0", "q0", "mesh", "k", 0),
        ("mesh0", "q0", "mesh", "m", 1),
        ("naive0", "q0", "naive", "k", 0),
    ]
    assert len(lines) == 8
    before = (tmp_path / "run" / "findings.jsonl").read_bytes()
    assert list(score_run(tmp_path / "run")) == scored
    assert (tmp_path / "run" / "findings.jsonl").read_bytes() == before


def test_a_workload_without_an_oracle_is_bad_input(tmp_path) -> None:
    with TraceStore.create(tmp_path / "run", {}) as store:
        trial = Build().seal(workload="codgen")
        store.seal(trial.record, trial.trace, trial.truth)
    with pytest.raises(ConfigError, match="did you mean 'codegen'"):
        list(score_run(tmp_path / "run"))


# --- the test of the testers --------------------------------------------------------------------------------------

INTENTS = (want("s/made/A-1"), want("s/kept/A-1"), want("t/seen/A-1", required=2), want("r==1.2", boundary="registry"))


class Sound(Toy):
    """Keys are put together from several fields, as those of real workloads are."""

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        parts = [name.split(" ") for name in super().natural_keys(effect)]
        return tuple(("==" if effect["boundary"] == "registry" else "/").join(part) for part in parts)


def reference() -> SealedTrial:
    b = Build()
    b.ask("s made A-1")
    b.ask("s kept A-1")
    b.ask("t seen A-1", "t seen A-1")
    b.ask("r 1.2", boundary="registry")
    return b.seal()


class _Deaf(Sound):
    """Hears nothing of what is asked at the ingress."""

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        return () if "payload" in effect else super().natural_keys(effect)


class _OneOfABatch(Sound):
    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        return super().natural_keys(effect)[:1]


class _Hurried(Sound):
    """Never looks at the subject: it believes the intent that has the right type."""

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        return tuple(key.rpartition("/")[0] + "/A-1" if "/" in key else key for key in super().natural_keys(effect))


class _Lenient(Sound):
    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return True


class _Negligent(Sound):
    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return files.keys() == GOOD.keys()


class _Severe(Sound):
    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        return False


def test_a_sound_oracle_passes() -> None:
    assert selftest(Sound(*INTENTS), reference()) == []


@pytest.mark.parametrize(
    ("oracle", "complaint"),
    [
        (_Deaf(*INTENTS), "never_attempted"),
        (_OneOfABatch(*INTENTS), "reference: transport t/seen/A-1 is never_attempted"),
        (_Hurried(*INTENTS), "another 'A-1' makes no other effect"),
        (_Lenient(*INTENTS), "reference without its files: accepted"),
        (_Negligent(*INTENTS), "reference with other files: accepted"),
        (_Severe(*INTENTS), "reference: not accepted"),
        (Sound(*INTENTS[1:]), "reference: transport s/made/A-1 is phantom"),
        (Sound(*INTENTS, want("s/more/A-1")), "reference: transport s/more/A-1 is never_attempted"),
        (Sound(replace(INTENTS[0], required=2), *INTENTS[1:]), "s/made/A-1 is never_attempted"),
        (Sound(replace(INTENTS[0], boundary="database"), *INTENTS[1:]), "transport s/made/A-1 is phantom"),
        (Sound(), "phantom"),
    ],
)
def test_a_mutated_oracle_is_caught(oracle: Toy, complaint: str) -> None:
    assert any(complaint in line for line in selftest(oracle, reference()))


def test_an_oracle_without_intents_proves_nothing() -> None:
    assert selftest(Toy(), Build().seal()) == ["reference: no intents"]


def test_planted_harm_is_found_by_kind() -> None:
    """The plants themselves are what they claim to be: every loss class is among them."""
    from harness.effects import open_books

    oracle, trial = Sound(*INTENTS), reference()
    books = open_books(trial, oracle)
    planted = Counter(p.status for e in books.committed for p in scoring._plants(trial, books, e))
    assert planted == {
        "": 4,
        "lost_in_flight": 7,
        "never_attempted": 4,
        "over_suppressed_silent": 4,
        "false_reject": 4,
        "wrongly_merged": 3,
    }
