"""The README is true: lists are what the registries say, what it names exists, and its examples run as they stand.

An example is a fenced block whose first line names its file. Those with a folder are added to a copy of the repository,
with the registry lines that the README gives; those without are put in a folder of their own.
"""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from typer.main import get_command

from arms import ARMS
from arms.mesh.control.canonical import strip
from arms.mesh.gates import GATES
from arms.mesh.waiver import load_waivers
from faults.common import OneShot, Pick
from harness import docs
from harness.cli import app
from harness.core.roles import Cut, Die, Fate, SiteOffer, Strike
from harness.core.types import Seam
from harness.incidents.guards import GUARDS
from harness.pool import run_trial_sim
from harness.report.rows import Row
from harness.schedule import Limits, PlannedFault, TrialSpec
from tests.architecture.test_imports import violations
from workloads.codegen.compose import Voice, event
from workloads.oracles import ORACLES

ROOT = docs.ROOT
README = docs.README.read_text(encoding="utf-8")
PAGES = {"README.md": README, "results/README.md": (ROOT / "results" / "README.md").read_text(encoding="utf-8")}
BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {path: text for kind, path, text in BLOCK.findall(README) if kind != "diff"}
REGISTRY_LINES = {path: text for kind, path, text in BLOCK.findall(README) if kind == "diff"}
AGENTMESH = Path(sys.executable).with_name("agentmesh")
OTHER_OPTIONS = {"--port", "--check", "--no-cache", "--help"}
"""Of `harness.docs`, of uv, and of every command."""


# --- lists and result ---------------------------------------------------------------------------------------------


def test_generated_blocks_are_what_the_registries_and_the_published_run_say() -> None:
    assert docs.rewritten(README) == README, "run: python -m harness.docs"


def test_check_fails_on_an_old_list_and_writing_repairs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text(README.replace("| `bare` |", "| `bear` |"), encoding="utf-8")
    monkeypatch.setattr(docs, "README", page)
    assert docs.main(["--check"]) == 1
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    assert page.read_text(encoding="utf-8") == README


def test_a_page_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="'arms' once"):
        docs.rewritten(README.replace("<!-- arms:end -->", ""))


def test_publishing_copies_what_is_released_and_nothing_old_stays(tmp_path: Path) -> None:
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "old.png").touch()
    docs.publish(docs.REFERENCE, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    plots = {f"plots/{path.name}" for path in (docs.REFERENCE / "plots").glob("*.png")}
    assert names == {*docs.PUBLISHED, *plots}
    assert {f"plots/{name}.png" for name in docs.PLOTS} <= plots


def test_a_folder_without_a_report_cannot_be_published(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"summary\.json"):
        docs.publish(tmp_path, tmp_path / "reference")


def test_a_run_without_treatment_has_a_result_block(tmp_path: Path) -> None:
    summary = json.loads((docs.REFERENCE / "summary.json").read_text())
    absent = {"not_applicable": "the run has no treatment arm: phase 1"}
    for primary in summary["primary"].values():
        primary.update(difference=absent, differences=[])
    summary["decision"].update(superiority=absent, non_inferiority=absent)
    summary["arms"] = summary["arms"][:1]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    shutil.copyfile(docs.REFERENCE / "manifest.json", tmp_path / "manifest.json")
    assert "superiority not applicable" in docs.result(tmp_path)
    assert docs.result(tmp_path / "nothing") == "No run is published yet."


def test_without_a_published_ladder_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    assert "agentmesh eval schedules/ablation.yaml" in docs.ablation(tmp_path)


def test_a_published_ladder_is_told_part_by_part(tmp_path: Path) -> None:
    apart = {"difference": 3.0, "ci_low": 1.0, "ci_high": 5.0, "pairs": 6}
    summary = json.loads((docs.REFERENCE / "summary.json").read_text())
    summary["ablation"] = {"of": "mesh", "arms": {"mesh_without_m3": {"duplicates_gross": apart}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    shutil.copyfile(docs.REFERENCE / "manifest.json", tmp_path / "manifest.json")
    told = docs.ablation(tmp_path)
    assert "* mesh_without_m3: effects are duplicated without the ledger" in told
    assert "| mesh_without_m3 | +3 ± 2 * |" in told


def test_every_gate_guard_incident_and_arm_stands_in_its_table() -> None:
    assert all(f"| `{gate.name}` |" in docs.gates() for gate in GATES)
    assert all(f"`{guard.name}`" in docs.guards() for guard in GUARDS)
    assert all(f"| {path.stem} |" in docs.incidents() for path in docs.INCIDENTS.glob("*.yaml"))
    assert all(f"`{name}`" in docs.arms() + docs.ladder() for name in ARMS)


def test_every_miss_in_the_field_is_explained() -> None:
    missed = docs.field().rpartition("Missed by the mesh: ")[2].strip(".")
    told = README.split("<!-- field:end -->")[1].split("<!-- heldout -->")[0]
    assert missed == "none" or all(f"**{one}**" in told for one in missed.split(", "))


def test_every_source_of_a_naive_parameter_is_given() -> None:
    given = set(re.findall(r"^\| `(\w+)` \| [^|]*\|$", README.split("<!-- parameters:end -->")[1], re.MULTILINE))
    named = re.findall(r"^\| `(\w+)(?:\.\w+)?` \| [^–]* \| .* \|$", docs.parameters(), re.MULTILINE)
    assert set(named) <= given


# --- what it names ------------------------------------------------------------------------------------------------


def test_commands_exist_and_all_are_told() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for text in PAGES.values():
        assert set(re.findall(r"\bagentmesh ([a-z]+)", text)) <= commands
    assert all(f"`agentmesh {name}" in README for name in commands)


def options(command: Any) -> Iterator[str]:
    """All options of a command and of those below it."""
    for parameter in command.params:
        yield from parameter.opts
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def test_options_exist() -> None:
    told = " ".join(options(get_command(app)))
    bench = [sys.executable, "-m", "tests.bench", "--help"]
    told += subprocess.run(bench, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    known = set(re.findall(r"--[a-z][a-z-]+", told)) | OTHER_OPTIONS
    prose = "".join(PAGES.values())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) <= known


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for text in PAGES.values() for name in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"eval", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_or_linked_exist(page: str) -> None:
    """Links are relative to the page. In code: whatever looks like a path below a folder of the repository."""
    text = BLOCK.sub("", PAGES[page])
    headings = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", README, re.M)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        assert not path or (ROOT / page).parent.joinpath(path).exists(), target
        assert not anchor or anchor in headings, target
    tops = "|".join(("arms", "faults", "harness", "schedules", "tests", "workloads", r"\.ci", "results/reference"))
    named = re.findall(rf"(?<![\w/.])(?:{tops})/[\w./-]+", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_modules_that_are_named_exist() -> None:
    for module, name in re.findall(r"\b(arms(?:\.\w+)+):(\w+)", README):
        assert re.search(rf"^{name} = ", (ROOT / f"{module.replace('.', '/')}.py").read_text(), re.MULTILINE)


# --- the examples -------------------------------------------------------------------------------------------------


def run(folder: Path, *words: str | Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(folder: Path) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in (folder / "rows.jsonl").read_bytes().splitlines()]


def patched(text: str, lines: str) -> str:
    """The file with the lines of a diff block: `-` goes, `+` comes, after the last line that stays."""
    held, place = text.splitlines(), 0
    for line in lines.splitlines():
        if line.startswith("+"):
            held.insert(place, line[1:])
            place += 1
        else:
            place = held.index(line[1:], max(0, place - 1))
            if line.startswith("-"):
                del held[place]
            else:
                place += 1
    return "\n".join(held) + "\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with every example of the README in it."""
    folder = tmp_path_factory.mktemp("copy")
    for top in ("arms", "faults", "harness", "schedules", "workloads"):
        shutil.copytree(ROOT / top, folder / top, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in EXAMPLES.items():
        if "/" in path:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).parent.joinpath("__init__.py").touch()
            (folder / path).write_text(text)
    for path, lines in REGISTRY_LINES.items():
        (folder / path).write_text(patched((folder / path).read_text(), lines))
    return folder


SCHEDULE = """schema: agentmesh-schedule/1
name: example
version: 1
seed: 7
world: sim
workloads: {{{workload}: 1}}
pairs: 6
no_fault_twins: 1
arms: [{arms}]
faults: {{exact: [{faults}]}}
"""


def ran(copy: Path, name: str, **parts: str) -> Path:
    """A run of the copy, scored."""
    (copy / f"{name}.yaml").write_text(SCHEDULE.format(**parts))
    run(copy, sys.executable, "-m", "harness.cli", "run", f"{name}.yaml", "--jobs", "1", "--out", f"out-{name}")
    run(copy, sys.executable, "-m", "harness.cli", "score", f"out-{name}")
    return copy / f"out-{name}"


def test_examples_are_there() -> None:
    folders = {path.split("/")[0] for path in EXAMPLES if "/" in path}
    assert folders == {"arms", "faults", "harness", "workloads"}
    assert len(REGISTRY_LINES) == 5


def test_examples_keep_the_rules_of_imports_and_style(copy: Path) -> None:
    files = [path for path in EXAMPLES if path.endswith(".py") and "/" in path]
    for path in files:
        assert violations(path.removesuffix(".py").replace("/", "."), copy / path) == [], path
    changed = [copy / path for path in (*files, *REGISTRY_LINES)]
    ruff = [sys.executable, "-m", "ruff"]
    run(copy, *ruff, "check", "--config", ROOT / "pyproject.toml", *changed)
    run(copy, *ruff, "format", "--check", "--config", ROOT / "pyproject.toml", *changed)


def test_fault_arm_and_metric_work_in_the_repository(copy: Path) -> None:
    faults = "{fault: staging_crash, variant: effect_unrecorded}, {fault: provider_outage, variant: calls_5}"
    out = ran(copy, "all", workload="codegen", arms="naive, look_first", faults=faults)
    found = [row for row in rows(out) if row.faults_scheduled]
    assert all(row.exposed for row in found if row.fault_class == "provider_outage")
    by_arm = {arm: [row for row in found if row.arm == arm] for arm in ("naive", "look_first")}
    duplicated = {arm: sum(row.duplicated for row in rows) for arm, rows in by_arm.items()}
    swallowed = {arm: sum(row.metrics["wrongly_suppressed"] for row in rows) for arm, rows in by_arm.items()}
    assert duplicated["look_first"] < duplicated["naive"]
    assert swallowed["look_first"] > swallowed["naive"] == 0
    assert all(row.metrics["check_runs"] > 0 for row in found)


def test_workload_works_in_the_repository_and_its_oracle_judges_itself(copy: Path) -> None:
    faults = "{fault: staging_crash, variant: effect_unrecorded}, {fault: network_partition, variant: transport_limit}"
    out = ran(copy, "ping", workload="ping", arms="naive, mesh", faults=faults)
    found = rows(out)
    assert sum(row.duplicated for row in found if row.arm == "naive") > 0
    assert sum(row.duplicated for row in found if row.arm == "mesh") == 0
    assert all(row.success for row in found)
    selftest = """
import sys
from pathlib import Path
from harness.score import selftest
from harness.trace_store import TraceStore
from workloads.oracles import ORACLES
with TraceStore.open(Path(sys.argv[1])) as store:
    twins = [trial for trial in store.iter() if trial.record.fault_class == "none"]
    assert twins and not any(selftest(ORACLES["ping"], twin) for twin in twins)
"""
    run(copy, sys.executable, "-c", selftest, out)


def test_examples_work_without_touching_the_repository(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "schedules" / "prereg", tmp_path / "schedules" / "prereg")
    for path, text in EXAMPLES.items():
        (tmp_path / Path(path).name).write_text(text)
    out = run(tmp_path, AGENTMESH, "eval", "mine.yaml", "--jobs", "1").splitlines()[-1]
    summary = json.loads((tmp_path / out / "summary.json").read_text())
    assert set(summary["arms"]) == {"naive", "mesh", "look_first:LOOK_FIRST"}
    assert set(summary["by_fault"]) == {"staging_crash", "provider_outage:ProviderOutage"}
    assert summary["decision"]["kill_criterion"] == "INVALID"
    counted = run(tmp_path, sys.executable, "count_checks.py", out).splitlines()
    assert len(counted) == 6 * 3


def test_the_declaration_is_admitted_and_refused_as_told(tmp_path: Path) -> None:
    text = EXAMPLES["mail.yaml"]
    (tmp_path / "mail.yaml").write_text(text)
    assert "admitted, sha256 " in run(tmp_path, AGENTMESH, "admit", "mail.yaml")
    (tmp_path / "mail.yaml").write_text(text.replace(", scenarios: [greet]", ""))
    refused = subprocess.run(
        [AGENTMESH, "admit", "mail.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert " ".join(refused.stderr.split()) in " ".join(README.split())


def test_the_waiver_is_one(tmp_path: Path) -> None:
    (tmp_path / "waivers.yaml").write_text(EXAMPLES["waivers.yaml"])
    (one,) = load_waivers(tmp_path / "waivers.yaml", date(2026, 12, 31))
    assert one.what in {gate.name for gate in GATES}


def test_the_field_incident_is_right_on_the_mesh_alone(tmp_path: Path) -> None:
    (tmp_path / "greeting.yaml").write_text(EXAMPLES["greeting.yaml"])
    told = run(tmp_path, AGENTMESH, "incidents", "greeting.yaml")
    assert "naive: 0 of 1 scenarios right" in told
    assert "mesh: 1 of 1 scenarios right" in told


# --- where the mesh stops -----------------------------------------------------------------------------------------


class Aimed:
    """Strikes where the README says that the mesh is weak; the fault classes of schedules may hit other things."""

    name: ClassVar[str] = "aimed"
    code: ClassVar[str] = "X0"
    about: ClassVar[str] = "aimed at a weak spot"
    variants: ClassVar[tuple[str, ...]] = ("download", "worker", "hook")

    @classmethod
    def plan(cls, variant: str, index: int, sites: tuple[SiteOffer, ...], pick: Pick) -> OneShot:
        died: Fate = Die(at_record=True)
        strike, fate = {
            "download": (Strike(seam=Seam.TOOL, name="registry"), Cut(how="limit", ms=0.0, bytes=10)),
            "worker": (Strike(seam=Seam.TOOL, name="transport", delegation="acceptance", moment="after"), died),
            "hook": (Strike(seam=Seam.TOOL, name="hook", moment="after"), died),
        }[variant]
        return OneShot(name=cls.name, variant=variant, strike=strike, decided=fate)


def trial(arm: str, fault: str, variant: str, *, seed: int = 3, variation: int = 3):  # type: ignore[no-untyped-def]
    return run_trial_sim(
        TrialSpec(
            schedule="test",
            index=0,
            workload="codegen",
            arm=arm,
            world="sim",
            mode="tdd",
            variation=variation,
            seed=seed,
            fault_class=fault,
            faults=(PlannedFault(fault=fault, variant=variant),),
            limits=Limits(),
            time_scale=1.0,
            settle_ms=600_000.0,
            idempotency_keys=False,
            pair="p",
            id="i",
        )
    )


def held(truth) -> dict[str, list[dict]]:  # type: ignore[no-untyped-def]
    """What the services hold, by natural key."""
    found = defaultdict(list)
    for e in truth:
        for key in ORACLES["codegen"].natural_keys(e.data) if e.kind == "effect" else ():
            found[key].append(e.data)
    return found


@pytest.mark.parametrize(("variant", "repeated"), [("download", "=="), ("worker", "order.accepted")])
def test_the_mesh_repeats_a_lost_download_and_an_event_with_a_hidden_volatile_field(
    variant: str, repeated: str
) -> None:
    result = trial("mesh", f"{__name__}:Aimed", variant)
    counts = {key: len(effects) for key, effects in held(result.truth).items() if "stock.reserved" not in key}
    assert [key for key, count in counts.items() if count > 1 and repeated in key]
    assert sum(counts.values()) == len(counts) + 1


def test_a_hook_in_doubt_stops_the_delegation() -> None:
    result = trial("mesh", f"{__name__}:Aimed", "hook")
    ends = [e.data["code"] for e in result.trace if e.kind == "delegation_end"]
    assert "awaiting-waiver" in ends


def test_other_words_are_another_fingerprint_and_other_spelling_is_not() -> None:
    def forms(level: int) -> set[str]:
        said = (event(Voice(1, level, (n,)), "order.created", "A-1", {"sku": "S", "n": 2}, "x") for n in range(8))
        return {json.dumps(strip(one), sort_keys=True) for one in said}

    assert len(forms(3)) == 1 < len(forms(4))


def test_a_retried_phase_words_its_effects_anew() -> None:
    """What a repeated effect says differs in its words, at L5, where its phase was composed again."""
    reworded = 0
    for seed in range(12):
        result = trial("naive", "staging_crash", "effect_unrecorded", seed=seed, variation=5)
        for effects in held(result.truth).values():
            texts = {str(e.get("sql") or e.get("event", {}).get("data", {}).get("note")) for e in effects}
            reworded += len(texts) > 1
    assert reworded
