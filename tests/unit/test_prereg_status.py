"""Whether a run confirms: every way to depart from a sealed registration is named, and nothing else is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.replication import layout
from harness.report.prereg import Prereg, parse_prereg
from harness.report.prereg.form import Digests, Sealed
from harness.schedule import ArmPairs, Schedule, Weighted
from harness.seal import CODE, Now, combined
from harness.seeds import SeedRun, runs_with_seed, used_seeds
from harness.status import (
    Status,
    at_analysis,
    at_end,
    begun_before,
    compare,
    continued,
    disagreements,
    judge,
    read_status,
    run_again,
)

PREREGS = Path(__file__).parents[2] / "schedules" / "prereg"
CONTENT = {key: value for key, value in strict_yaml.read(PREREGS / "kill-criterion-003.yaml").value.items()} | {
    "sealed": None
}
OPEN = parse_prereg(CONTENT)
FILES = {
    "analysis_code": {"harness/stats/kill.py": "1" * 64, "harness/score.py": "2" * 64},
    "arms": {"arms/bare.py": "3" * 64},
}
SEALED_AT = "2026-01-31T12:00:00Z"
START = "2026-01-31T13:00:00Z"


def digests(**others: str) -> dict[str, str]:
    plain = dict.fromkeys(Digests.__struct_fields__, "0" * 64)
    return {**plain, **{name: combined(held) for name, held in FILES.items()}, **others}


def now(files: dict[str, dict[str, str]] = FILES, **others: str) -> Now:
    found = digests(**{name: combined(held) for name, held in files.items()}, **others)
    return Now(digests=found, files=files, absent={})


BEGUN = digests()
SEALED: Prereg = replace(OPEN, sealed=Sealed(at=SEALED_AT, digests=Digests(**digests())))
SCHEDULE = Schedule(
    schema="agentmesh-schedule/1",
    name="main",
    version=4,
    seed=64180593,
    pairs=800,
    workloads={"codegen": 1.0},
    arms=(ArmPairs(name="naive"), ArmPairs(name="mesh"), ArmPairs(name="journaled", pairs=20)),
    mix={name: Weighted(weight=entry.weight) for name, entry in OPEN.faults.items()},
)


def judged(prereg: Prereg = SEALED, found: Now | None = None, **overrides: Any) -> Status:
    return judge(prereg, found or now(), SCHEDULE, overrides, files=FILES, at=START)


# --- at the start -------------------------------------------------------------------------------------------------


def test_a_run_that_is_as_sealed_confirms() -> None:
    assert judged() == Status(True, ())


@pytest.mark.parametrize("name", Digests.__struct_fields__)
def test_each_digest_that_differs_makes_a_run_exploratory(name: str) -> None:
    found = judged(found=replace(now(), digests=digests(**{name: "f" * 64})))
    assert not found.confirmatory
    assert len(found.because) == 1
    assert found.because[0].startswith(f"{name} differs from the sealed one")


def test_files_that_changed_came_and_went_are_named() -> None:
    files = {
        "analysis_code": {"harness/stats/kill.py": "9" * 64, "harness/stats/new.py": "8" * 64},
        "arms": FILES["arms"],
    }
    assert judged(found=now(files)).because == (
        "analysis_code differs from the sealed one: harness/score.py removed, harness/stats/kill.py changed, "
        "harness/stats/new.py added",
    )


def test_a_list_of_files_that_does_not_give_the_sealed_digest_is_not_believed() -> None:
    other = {"analysis_code": {"harness/stats/kill.py": "7" * 64}}
    (found,) = [d for d in compare(SEALED, now({**FILES, "analysis_code": {}}), other) if not d.same]
    assert found.files == ()
    assert found.sentence() == "analysis_code differs from the sealed one"


def test_many_files_are_counted_and_not_listed() -> None:
    files = {**FILES, "arms": {f"arms/a{i}.py": "4" * 64 for i in range(7)}}
    (reason,) = judged(found=now(files)).because
    assert reason.endswith("arms/a3.py added, arms/a4.py added, and 3 more")


def test_what_cannot_be_computed_does_not_confirm() -> None:
    found = now()
    del found.digests["lock_file"]
    absent = replace(found, absent={"lock_file": "there is no requirements.lock"})
    assert judged(found=absent).because == ("lock_file cannot be compared: there is no requirements.lock",)


def test_other_packages_than_the_locked_ones_do_not_confirm() -> None:
    other = replace(now(), other_packages=("numpy 1 is installed, locked is 2",))
    assert judged(found=other).because == other.other_packages


@pytest.mark.parametrize(
    ("overrides", "because"),
    [
        ({"seed": 5}, ("the command line changes seed to 5",)),
        ({"arms": ("naive", "bare")}, ("the command line changes arms to naive, bare",)),
        ({"world": "sim"}, ("the command line changes world to sim",)),
        ({"variation": 0}, ("the command line changes variation to 0",)),
        ({"until": "never"}, ("the command line changes until to never",)),
        ({"pairs": 30}, ()),
        ({"until": "full_claim"}, ()),
        ({"until": "all_pairs", "pairs": 60}, ()),
    ],
)
def test_overrides_that_are_not_registered_do_not_confirm(overrides: Any, because: tuple[str, ...]) -> None:
    assert judged(**overrides) == Status(not because, because)


def test_a_registration_without_a_seal_never_confirms() -> None:
    assert judged(OPEN).because == ("registration kill-criterion-003 is not sealed",)
    first = parse_prereg(strict_yaml.read(PREREGS / "kill-criterion-001.yaml").value)
    assert judged(first).because == ("registration kill-criterion-001 is not sealed (agentmesh-prereg/1 has no seal)",)


def test_a_seal_of_after_the_start_does_not_confirm() -> None:
    late = judge(SEALED, now(), SCHEDULE, {}, at="2026-01-31T11:59:59Z")
    assert late.because == (
        "registration kill-criterion-003 was sealed at 2026-01-31T12:00:00Z, after the start of the run at "
        "2026-01-31T11:59:59Z",
    )


def test_a_used_seed_and_code_of_others_do_not_confirm() -> None:
    schedule = replace(SCHEDULE, workloads={"codegen": 1.0, "theirs.tasks:TASK": 1.0})
    found = judge(SEALED, now(), schedule, {}, used={64180593: "main schedule version 9"})
    assert found.because == (
        "seed 64180593 was used before: main schedule version 9",
        "no digest binds theirs.tasks:TASK, which is code of others",
    )


# --- later --------------------------------------------------------------------------------------------------------


def test_a_run_continued_by_other_code_no_longer_confirms() -> None:
    changed = judged(found=now({**FILES, "arms": {"arms/bare.py": "5" * 64}}))
    both = continued(judged(), changed)
    assert both.because == ("when the run was continued: arms differs from the sealed one: arms/bare.py changed",)
    assert not both.confirmatory
    assert continued(both, changed) == both, "and says so once"
    assert continued(judged(), judged()) == judged(), "an unchanged one is as if it had never stopped"
    assert continued(changed, judged()) == changed, "what was wrong at the start stays wrong"
    assert continued(changed, changed) == changed


def test_code_that_was_changed_while_the_run_went_on_does_not_confirm() -> None:
    files = {**{name: {} for name in CODE}, **FILES}
    begun = {name: combined(held) for name, held in files.items()}
    assert at_end(judged(), begun, files) == judged()
    other = {**files, "arms": {"arms/bare.py": "5" * 64}}
    assert at_end(judged(), begun, other) == Status(False, ("arms was changed while the run went on",))
    assert at_end(Status(False, ("held",)), begun, files) == Status(False, ("held",))


def test_trials_that_were_lost_after_the_end_and_run_again_do_not_confirm() -> None:
    assert run_again(judged(), 0) == judged()
    because = ("3 trials were lost after the run had ended, and were run again",)
    assert run_again(judged(), 3) == Status(False, because)


def test_an_analysis_by_other_code_does_not_confirm() -> None:
    other = {"analysis_code": {"harness/stats/kill.py": "5" * 64}}
    found = at_analysis(SEALED, judged(), other, BEGUN)
    assert found == Status(False, ("when the run was analysed: analysis_code differs from the sealed one",))
    assert at_analysis(SEALED, judged(), FILES, BEGUN) == judged()
    assert at_analysis(SEALED, found, other, BEGUN) == found
    held = judged(found=now({**FILES, **other}))
    begun = {**BEGUN, "analysis_code": "6" * 64}
    assert at_analysis(SEALED, held, other, begun) == held, "it was said before the first trial"
    lied = at_analysis(SEALED, judged(), FILES, {**BEGUN, "arms": "5" * 64})
    assert lied == Status(False, ("at its start, arms was not the sealed one",)), (
        "whatever the status in a manifest says"
    )
    assert at_analysis(OPEN, judged(OPEN), other, {}) == judged(OPEN)


def test_a_seed_that_was_run_before_does_not_confirm(tmp_path: Path) -> None:
    for name, trials in (("a", "{}\n"), ("b", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text('{"seed": 5}')
        (tmp_path / name / "trials.jsonl").write_text(trials)
    found = runs_with_seed(5, [tmp_path])
    assert found == (SeedRun((tmp_path / "a").as_posix()),), "nobody has seen a trial of the other"
    assert begun_before(judged(), found).because == (f"its seed was run before, in {tmp_path / 'a'}",)
    assert begun_before(judged(), ()) == judged()


def test_a_manifest_without_a_status_does_not_confirm() -> None:
    assert not read_status({}).confirmatory
    assert not read_status({"preregistration": {"sha256": "0"}}).confirmatory
    held = {"preregistration": {"status": {"confirmatory": False, "because": ["x"]}}}
    assert read_status(held) == Status(False, ("x",))


# --- schedule against registration --------------------------------------------------------------------------------


def test_the_schedule_of_the_registration_fits() -> None:
    assert disagreements(OPEN, SCHEDULE) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mix": {**SCHEDULE.mix, "hung_check": Weighted(weight=0.3)}}, "it draws hung_check with weight 0.26"),
        ({"mix": {**SCHEDULE.mix, "gremlins": Weighted(weight=0.1)}}, "it draws gremlins with weight 0.09"),
        ({"mix": {}}, "places faults in turn"),
        ({"faults_per_trial": 1}, "faults_per_trial 1, registered are 2"),
        ({"pairs": 60}, "it has 60 pairs, registered are 800"),
        ({"arms": (ArmPairs(name="naive"),)}, "registered treatment arm 'mesh' is not among"),
        ({"arms": (ArmPairs(name="mesh"),)}, "registered control arm 'naive' is not among"),
        ({"arms": (ArmPairs(name="naive", pairs=20), ArmPairs(name="mesh"))}, "'naive' takes part in 20 of 800"),
    ],
)
def test_a_schedule_that_says_otherwise_is_named(changes: Any, said: str) -> None:
    found = disagreements(OPEN, replace(SCHEDULE, **changes))
    assert any(said in sentence for sentence in found), found


def test_registered_weights_of_workloads_bind() -> None:
    design = replace(OPEN.design, workloads={"codegen": 0.75, "relay": 0.25})
    mixed = replace(OPEN, design=design)
    assert disagreements(mixed, replace(SCHEDULE, workloads={"codegen": 3.0, "relay": 1.0})) == ()
    assert disagreements(mixed, SCHEDULE) == (
        "it draws codegen with weight 1, registered is 0.75",
        "it draws relay with weight 0, registered is 0.25",
    )


# --- used seeds ---------------------------------------------------------------------------------------------------


def test_every_seed_of_a_schedule_that_was_ever_published_is_listed() -> None:
    """Only the seed of the newest registration is fresh, and only until its run is released."""
    used, newest = used_seeds(PREREGS / "any.yaml"), max(PREREGS.glob("kill-criterion-*.yaml")).name
    for path in [*PREREGS.parent.glob("*.yaml"), *(PREREGS.parent / "negative").glob("*.yaml")]:
        document = strict_yaml.read(path).value
        fresh = document["name"] == "main" and document["preregistration"].endswith(newest)
        assert (document["seed"] in used) is not fresh, path
    assert {4021977, 90417733, 55120984, 83021467} <= used.keys(), "main, versions 1 to 3"


def test_a_list_of_used_seeds_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "used-seeds.yaml"
    assert used_seeds(tmp_path / "k.yaml") == {}
    path.write_text("schema: agentmesh-used-seeds/1\nseeds: [{seed: 5, where: here}, {seed: 6, where: there}]\n")
    assert used_seeds(tmp_path / "k.yaml") == {5: "here", 6: "there"}
    for bad, said in [
        ("[{seed: 5, where: a}, {seed: 5, where: b}]", "listed twice"),
        ("[{seed: -1, where: a}]", "from 0"),
        ("[{sed: 5, where: a}]", "did you mean 'seed'"),
    ]:
        path.write_text(f"schema: agentmesh-used-seeds/1\nseeds: {bad}\n")
        with pytest.raises(ConfigError, match=said):
            used_seeds(tmp_path / "k.yaml")


def test_runs_of_a_seed_are_found_wherever_they_lie(tmp_path: Path) -> None:
    for name, text in [("main/a", '{"seed": 5}'), ("reference", '{"seed": 6}'), ("main/b", "[]"), ("c", "{")]:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text(text)
        (tmp_path / name / "trials.jsonl").write_text("{}\n")
    assert runs_with_seed(5, [tmp_path, tmp_path / "absent"]) == (SeedRun((tmp_path / "main" / "a").as_posix()),)
    assert runs_with_seed(7, [tmp_path]) == ()


def manifest(started: str = "2026-12-01T01:35:50Z", **more: Any) -> bytes:
    held = {"seed": 5, "schedule": {"sha256": "ab"}, "started": started, "starts": [{"at": started, "jobs": 4}]}
    return json.dumps({**held, **more}).encode()


def lay(folder: Path, content: bytes, *, trials: bytes | None = None) -> str:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(content)
    if trials is not None:
        (folder / "trials.jsonl").write_bytes(trials)
    return folder.as_posix()


def pack(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/") + ".json", content)
    return path.as_posix()


def test_a_released_run_counts_without_its_trials_and_so_does_a_bundle(tmp_path: Path) -> None:
    released = lay(tmp_path / "reference", manifest())
    bundle = pack(tmp_path / "other.zip", run__manifest=manifest("2026-12-02T00:00:00Z"))
    found = runs_with_seed(5, [tmp_path])
    assert found == (SeedRun(released, released=True), SeedRun(bundle, released=True))
    assert begun_before(judged(), found) == Status(
        False,
        (
            f"a run of its seed is released already, in {released}",
            f"a run of its seed is released already, in {bundle}",
        ),
    )
    assert runs_with_seed(6, [tmp_path]) == ()


def test_copies_of_a_run_are_one_run_and_the_fullest_is_named(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip", run__manifest=manifest(ended="2026-12-01T02:05:25Z"))
    assert [run.where for run in runs_with_seed(5, [tmp_path])] == [(tmp_path / "a.zip").as_posix()]
    released = lay(tmp_path / "b", manifest(ended="2026-12-01T02:05:25Z"))
    assert runs_with_seed(5, [tmp_path]) == (SeedRun(released, released=True),)
    whole = lay(tmp_path / "c", manifest(), trials=b"{}\n")
    assert runs_with_seed(5, [tmp_path]) == (SeedRun(whole),)


def test_the_release_of_a_run_does_not_count_against_itself(tmp_path: Path) -> None:
    lay(tmp_path / "reference", manifest(ended="2026-12-01T02:05:25Z"))
    pack(tmp_path / "a.zip", run__manifest=manifest())
    own = json.loads(manifest(reruns=[1], starts=[{"at": "2026-12-01T01:35:50Z", "jobs": 4}, {"at": "later"}]))
    assert runs_with_seed(5, [tmp_path], apart_from=own) == ()
    another = json.loads(manifest("2026-12-01T01:35:51Z"))
    assert len(runs_with_seed(5, [tmp_path], apart_from=another)) == 1
    assert len(runs_with_seed(5, [tmp_path], apart_from={"seed": 5})) == 1, "it does not say which run it is"


@pytest.mark.parametrize("content", [b"[]", b"no JSON", b"{", b'{"seed": 6}', b'{"seed": null}'])
def test_files_of_others_are_no_runs(tmp_path: Path, content: bytes) -> None:
    lay(tmp_path / "a", content)
    lay(tmp_path / "b", content, trials=b"{}\n")
    pack(tmp_path / "c.zip", run__manifest=content)
    pack(tmp_path / "d.zip", manifest=manifest())
    (tmp_path / "e.zip").write_bytes(b"PK no archive")
    whole = Path(pack(tmp_path / "f.zip", run__manifest=manifest())).read_bytes()
    (tmp_path / "f.zip").write_bytes(whole.replace(b"2026", b"2027", 1))
    assert runs_with_seed(5, [tmp_path]) == ()


def test_our_own_release_is_one_run_of_its_seed() -> None:
    results = PREREGS.parents[1] / "results"
    held = json.loads((results / "reference" / "manifest.json").read_bytes())
    found = [run for run in runs_with_seed(held["seed"], [results]) if run.released]
    assert [Path(run.where).name for run in found] in (["reference"], []), "its bundle is the same run"
    (bundle,) = (results / "reference").glob("*.zip")
    with zipfile.ZipFile(bundle) as archive:
        bundled = json.loads(archive.read(f"{layout.RUN}/manifest.json"))
    assert runs_with_seed(held["seed"], [results / "reference"], apart_from=bundled) == ()
    assert len(runs_with_seed(held["seed"], [results / "reference"])) == 1
