"""`agentmesh prereg`: sealing, checking and explaining a registration as a person does."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from harness import seal as digests
from harness import seeds, status
from harness.commands import NOT_AS_WANTED, prereg
from harness.core.errors import ConfigError
from harness.report.prereg import load_prereg
from harness.report.prereg.write import SAID
from harness.schedule_file import Names, read, resolve

ROOT = Path(__file__).parents[2]
MAIN = """\
schema: agentmesh-schedule/1
name: main
version: 4
seed: 64180593
world: live
workloads: {codegen: 1}
pairs: 800
arms: [naive, mesh, {name: journaled, pairs: 20}]
no_fault_twins: 10
faults:
  mix:
    staging_crash: 0.12
    orchestrator_restart: 0.12
    hung_check: 0.15
    network_partition: 0.15
    provider_interruption: 0.24
    nondeterminism: 0.22
preregistration: prereg/kill.yaml
"""


class Bench:
    """A checkout in small: a schedule, its registration, a lock file and a list of used seeds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.schedule = folder, folder / "prereg" / "kill.yaml", folder / "main.yaml"
        self.app = typer.Typer()
        prereg.add(self.app)
        (folder / "prereg").mkdir()
        self.schedule.write_text(MAIN)
        text = (ROOT / "schedules" / "prereg" / "kill-criterion-003.yaml").read_text(encoding="utf-8")
        self.file.write_text(text.split(SAID)[0], encoding="utf-8")
        (folder / digests.LOCK).write_text("")
        self.used("[{seed: 5, where: an earlier release}]")

    def used(self, listed: str) -> None:
        text = f"schema: agentmesh-used-seeds/1\nseeds: {listed}\n"
        (self.folder / "prereg" / seeds.USED_SEEDS).write_text(text)

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        done = CliRunner().invoke(self.app, ["prereg", *map(str, words)])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout

    def seal(self, *more: str) -> tuple[int, str]:
        results = self.folder / "results"
        return self("seal", self.file, "--schedule", self.schedule, "--results", results, *more)

    def check(self) -> tuple[int, str]:
        return self("check", self.file, "--schedule", self.schedule)


@pytest.fixture(scope="module")
def sources() -> dict[str, dict[str, str]]:
    return digests.sources()


@pytest.fixture
def bench(tmp_path: Path, sources: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The source files are looked at once: whoever edits them during the tests changes nothing here."""
    monkeypatch.setattr(digests, "sources", lambda root: sources)
    return Bench(tmp_path)


def test_a_registration_that_was_just_sealed_is_as_sealed(bench: Bench) -> None:
    before = bench.file.read_text(encoding="utf-8")
    code, said = bench.seal()
    assert code == 0
    assert bench.file.read_text(encoding="utf-8").startswith(before.rstrip())
    assert f"sha256 {load_prereg(bench.file).sha256}" in said
    code, said = bench.check()
    assert code == 0
    assert [line for line in said.splitlines() if line.endswith("\tsame")] == [
        f"{name}\tsame" for name in status.DIGESTS
    ]


def test_a_run_of_what_was_sealed_confirms(bench: Bench) -> None:
    from harness import catalogue

    bench.seal()
    schedule = resolve(read(bench.schedule), Names.of(catalogue.load()))
    held = load_prereg(bench.file)
    found, now = status.status(held, bench.file, schedule, {"pairs": 60})
    assert found == status.Status(True, ())
    assert held.sealed is not None
    assert all(now.digests[name] == getattr(held.sealed.digests, name) for name in status.DIGESTS)


def test_the_list_of_sealed_files_gives_the_sealed_digests(bench: Bench) -> None:
    bench.seal()
    held = load_prereg(bench.file).sealed
    assert held is not None
    listed = json.loads(status.files_beside(bench.file).read_text())["files"]
    assert set(listed) == set(digests.CODE)
    for name, files in listed.items():
        assert digests.combined(files) == getattr(held.digests, name)


def test_a_threshold_that_is_changed_after_sealing_is_found(bench: Bench) -> None:
    bench.seal()
    text = bench.file.read_text(encoding="utf-8")
    laxer = text.replace("duplicate_effect_rate: 0.01 ", "duplicate_effect_rate: 0.02 ")
    bench.file.write_text(laxer, encoding="utf-8")
    code, said = bench.check()
    assert code == NOT_AS_WANTED
    assert "registration\tdiffers" in said
    assert said.count("differs") == 1
    assert "exploratory" in said


def test_a_comment_that_is_changed_after_sealing_is_not(bench: Bench) -> None:
    bench.seal()
    bench.file.write_text("# a word\n" + bench.file.read_text(encoding="utf-8"), encoding="utf-8")
    assert bench.check()[0] == 0


def test_other_code_is_named_file_by_file(
    bench: Bench, sources: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.seal()
    code = {**sources["analysis_code"], "harness/stats/kill.py": "0" * 64}
    monkeypatch.setattr(digests, "sources", lambda root: {**sources, "analysis_code": code})
    exit_code, said = bench.check()
    assert exit_code == NOT_AS_WANTED
    assert "analysis_code\tdiffers\n  harness/stats/kill.py changed\n" in said
    assert "arms\tsame" in said
    status.files_beside(bench.file).unlink()
    assert "kill.files.json is missing or of another seal, so that files cannot be named" in bench.check()[1]


def test_another_schedule_seed_or_lock_file_is_found(bench: Bench) -> None:
    bench.seal()
    bench.schedule.write_text(MAIN.replace("seed: 64180593", "seed: 64180594"))
    (bench.folder / digests.LOCK).write_text("# another\n")
    code, said = bench.check()
    assert code == NOT_AS_WANTED
    assert [line for line in said.splitlines() if line.endswith("\tdiffers")] == [
        "schedule\tdiffers",
        "pair_seeds\tdiffers",
        "lock_file\tdiffers",
    ]


def test_without_a_schedule_what_depends_on_it_is_not_compared(bench: Bench) -> None:
    bench.seal()
    code, said = bench("check", bench.file)
    assert code == 0
    assert "schedule\tnot compared\n  no schedule was named" in said
    assert "pair_seeds\tnot compared" in said


def test_a_seal_is_replaced_on_demand_only_and_remembered(bench: Bench) -> None:
    bench.seal()
    first = load_prereg(bench.file)
    with pytest.raises(ConfigError, match="it was sealed at"):
        bench.seal()
    assert load_prereg(bench.file) == first
    assert bench.seal("--again")[0] == 0
    again = load_prereg(bench.file).sealed
    assert again is not None
    assert [old.sha256 for old in again.previous] == [first.sha256]
    assert "It replaces the seal of" in bench("explain", bench.file)[1]


def test_a_used_seed_is_refused_with_where(bench: Bench) -> None:
    before = bench.file.read_text(encoding="utf-8")
    bench.used("[{seed: 64180593, where: main schedule version 3}]")
    for command in (bench.seal, bench.check):
        with pytest.raises(ConfigError, match="seed 64180593 was used before: main schedule version 3"):
            command()
    (bench.folder / "prereg" / seeds.USED_SEEDS).unlink()
    with pytest.raises(ConfigError, match="there is no used-seeds"):
        bench.seal()
    assert bench.file.read_text(encoding="utf-8") == before


def test_a_seed_that_was_run_before_sealing_is_refused(bench: Bench) -> None:
    run = bench.folder / "results" / "main" / "early"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text('{"seed": 64180593}')
    (run / "trials.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"was run already: .*early"):
        bench.seal()


def test_the_seed_of_a_released_run_is_refused_though_its_trials_are_not_there(bench: Bench) -> None:
    released = bench.folder / "results" / "reference"
    released.mkdir(parents=True)
    for text in ("[]", "no JSON", '{"seed": 1}'):  # somebody else's file, and another seed
        (released / "manifest.json").write_text(text)
        bench.seal("--again")
    (released / "manifest.json").write_text('{"seed": 64180593}')
    with pytest.raises(ConfigError, match=r"was run already: .*reference \(released\)"):
        bench.seal("--again")
    (released / "manifest.json").unlink()
    with zipfile.ZipFile(released / "kill.bundle.zip", "w") as archive:
        archive.writestr("run/manifest.json", '{"seed": 64180593}')
    with pytest.raises(ConfigError, match=r"was run already: .*kill\.bundle\.zip \(released\)"):
        bench.seal("--again")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hung_check: 0.15", "hung_check: 0.25", "it draws hung_check with weight 0.227"),
        ("prereg/kill.yaml", "prereg/other.yaml", "the schedule names 'prereg/other.yaml'"),
        ("pairs: 800", "pairs: 60", "it has 60 pairs, registered are 800"),
        ("arms: [naive, mesh,", "arms: [naive, bare,", "treatment arm 'mesh' is not among"),
        ("arms: [naive, mesh,", "arms: [naive, mash,", "did you mean 'mesh'"),
        ("{name: journaled, pairs: 20}", '"tests.negative.canary:ARM"', "no digest binds code of others|canary"),
    ],
)
def test_a_schedule_that_the_registration_cannot_decide_is_refused(bench: Bench, old: str, new: str, said: str) -> None:
    (bench.folder / "prereg" / "other.yaml").write_text(bench.file.read_text(encoding="utf-8"), encoding="utf-8")
    bench.schedule.write_text(MAIN.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        bench.seal()
    assert load_prereg(bench.file).sealed is None


def test_a_registration_of_the_first_version_cannot_be_sealed(bench: Bench) -> None:
    bench.file.write_text((ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml").read_text(encoding="utf-8"))
    with pytest.raises(ConfigError, match="agentmesh-prereg/1 cannot be sealed; allowed: agentmesh-prereg/2"):
        bench.seal()


def test_what_is_not_sealed_cannot_be_checked(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="is not sealed; first: agentmesh prereg seal"):
        bench("check", bench.file)


def test_every_registration_can_be_explained(bench: Bench) -> None:
    for file in sorted((ROOT / "schedules" / "prereg").glob("kill-criterion-*.yaml")):
        code, said = bench("explain", file)
        assert code == 0
        assert "INCONCLUSIVE:" in said
