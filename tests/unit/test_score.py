"""Judging whole trials and runs, and the test of the testers."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from handmade import GOOD, Build, Story, Toy, accept, build, want
from msgspec.structs import replace

from harness import score as scoring
from harness.accounting import account
from harness.core.errors import ConfigError
from harness.core.records import ScoredTrial, SealedTrial, Work
from harness.core.types import Json
from harness.effects import open_books
from harness.score import score, score_run, selftest
from harness.trace_store import TraceStore


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
            if other != "skipped":
                b.note("checkpoint", delegation="e", phase="p", attempt=1, files={})
            b.note(
                "delegation_end", delegation="e", status="done" if other == "skipped" else other, code="", verdict=None
            )
        trial = b.seal(status)
        if files is not None:
            b.checkpoint(files)
            trial = replace(trial, trace=tuple(b.trace))
        return score(trial, Toy(want("k", delegation=intent)))

    assert scored().success
    assert scored(other="done").success
    assert not scored(other="skipped").success  # an arm that says done of what never ran
    assert not scored("failed").success
    assert not scored(other="failed").success
    assert not scored(intent="never started").success
    assert not scored(files={"app.py": "other"}).success
    assert not scored(files={}).success


class _Proven(Toy):
    proofs = ("whole",)


def test_success_needs_the_proofs_that_the_oracle_names_to_have_really_been_green() -> None:
    def scored(*runs: tuple[str, bool], oracle: type[Toy] = _Proven) -> bool:
        b = Build()
        for check, passed in runs:
            b.really("checked", check=check, delegation="d", call_id="c", passed=passed)
        return score(b.seal(), oracle()).success

    assert scored(("whole", True))
    assert scored(("whole", False), ("whole", True), ("whole", False))
    assert not scored()
    assert not scored(("whole", False))
    assert not scored(("unit", True))
    assert scored(oracle=Toy)  # an oracle that names none


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


@pytest.mark.parametrize("fates", [("charged",), ("spontaneous",), ("charged", "spontaneous")])
@pytest.mark.parametrize("taken_for", ["live", "dead_end"])
def test_an_accounting_that_loses_sight_of_destroyed_work_is_caught(
    fates: tuple[str, ...], taken_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    story.begin()
    build(story)
    accept(story)
    trial = story.trial()
    assert not list(scoring._unseen_work(trial))

    def blind(trial: SealedTrial) -> Work:
        work = account(trial)
        gone = sum(getattr(work, fate) for fate in fates)
        return replace(work, **dict.fromkeys(fates, 0), **{taken_for: getattr(work, taken_for) + gone})

    monkeypatch.setattr(scoring, "account", blind)
    assert list(scoring._unseen_work(trial))


def test_an_oracle_without_intents_proves_nothing() -> None:
    assert selftest(Toy(), Build().seal()) == ["reference: no intents"]


def test_planted_harm_is_found_by_kind() -> None:
    """The plants themselves are what they claim to be: every loss class is among them."""
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


def test_a_delegation_is_a_link_that_held_when_it_is_done_and_every_effect_of_it_was_had_once() -> None:
    def clean(commits: int, status: str = "done") -> dict[str, bool]:
        b = Build()
        b.ask("k", commits=commits)
        return score(b.seal(status), Toy(want("k"), want("other", delegation="never started"))).clean

    assert clean(1) == {"d": True, "never started": False}
    assert clean(2)["d"] is False
    assert clean(0)["d"] is False
    assert clean(1, "failed")["d"] is False
