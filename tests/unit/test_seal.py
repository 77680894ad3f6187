"""Which file is bound by which digest, and that a digest depends on content and path alone."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import seal
from harness.core.errors import ConfigError
from harness.report.prereg.form import Digests
from harness.schedule import Schedule, override
from harness.schedule_file import Names, read, resolve

ROOT = Path(__file__).parents[2]
KNOWN = {"__pycache__"}


def main_schedule() -> Schedule:
    from harness import catalogue

    return resolve(read(ROOT / "schedules" / "main.yaml"), Names.of(catalogue.load()))


# --- the table ----------------------------------------------------------------------------------------------------


def test_every_source_file_is_bound_by_one_digest_or_exempt_with_a_reason() -> None:
    files = seal.sources()
    bound = [path for held in files.values() for path in held]
    exempt = [path for path in seal.paths() if not seal.rule_of(path).bound_by]
    assert len(bound) == len(set(bound))
    assert sorted([*bound, *exempt]) == seal.paths()
    assert all(seal.rule_of(path).because for path in exempt)
    assert not any(rule.because for rule in seal.RULES if rule.bound_by)
    assert len(bound) > 200
    assert set(files) <= set(Digests.__struct_fields__)


@pytest.mark.parametrize("rule", seal.RULES, ids=lambda rule: rule.files)
def test_no_rule_is_dead(rule: seal.Rule) -> None:
    assert any(seal.rule_of(path) is rule for path in seal.paths()), "no file falls under it"


@pytest.mark.parametrize(
    ("path", "bound_by"),
    [
        ("harness/stats/kill.py", "analysis_code"),
        ("harness/report/prereg/read.py", "analysis_code"),
        ("harness/report/report.md.j2", "analysis_code"),
        ("harness/score.py", "analysis_code"),
        ("workloads/codegen/oracle.py", "analysis_code"),
        ("harness/core/records.py", "analysis_code"),
        ("harness/schedule.py", "schedule_generator"),
        ("harness/trial.py", "harness_code"),
        ("harness/seal.py", "harness_code"),
        ("harness/something_new.py", "harness_code"),
        ("arms/mesh/control/corpus/code.yaml", "arms"),
        ("workloads/codegen/task.py", "workloads"),
        ("faults/hung_check.py", "faults"),
        ("harness/docs.py", seal.UNBOUND),
    ],
)
def test_a_file_is_bound_by_what_it_decides(path: str, bound_by: str) -> None:
    assert seal.rule_of(path).bound_by == bound_by


def test_a_file_outside_the_packages_has_no_rule() -> None:
    with pytest.raises(ConfigError, match="no rule says"):
        seal.rule_of("tests/unit/test_seal.py")


def test_no_file_of_the_packages_escapes_by_its_ending() -> None:
    """Something that is read at run time under another ending would be bound by nothing."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *seal.PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    there = {path for path in listed if (ROOT / path).is_file()}
    assert there
    assert there <= set(seal.paths())


def test_no_bound_file_imports_an_exempt_one() -> None:
    """What a bound file loads decides too, so an exemption would be a hole."""
    exempt = {_module(path) for path in seal.paths() if path.endswith(".py") and not seal.rule_of(path).bound_by}
    holes = [
        f"{path} imports {name}"
        for path in seal.paths()
        if path.endswith(".py") and seal.rule_of(path).bound_by
        for name in _imports(ROOT / path)
        if name in exempt
    ]
    assert holes == []


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


# --- digests ------------------------------------------------------------------------------------------------------


def copy_of_packages(folder: Path) -> Path:
    for path in seal.paths():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    return folder


def test_digests_do_not_depend_on_where_the_files_lie_nor_on_caches(tmp_path: Path) -> None:
    copy = copy_of_packages(tmp_path / "elsewhere")
    cache = copy / "harness" / "__pycache__"
    cache.mkdir()
    (cache / "trial.py").write_text("stale")
    (copy / "arms" / ".hidden.py").write_text("x")
    (copy / "arms" / "notes.txt").write_text("x")
    assert seal.sources(copy) == seal.sources()


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    code = "from harness import seal; print({n: seal.combined(f) for n, f in seal.sources().items()})"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "12345")
    }
    assert said == {f"{ {name: seal.combined(files) for name, files in seal.sources().items()} }\n"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("harness/stats/kill.py", "analysis_code"),
        ("arms/mesh/control/budget.yaml", "arms"),
        ("harness/trial.py", "harness_code"),
        ("workloads/codegen/task.py", "workloads"),
        ("faults/common.py", "faults"),
        ("harness/core/rng.py", "schedule_generator"),
    ],
)
def test_one_byte_changes_the_digest_of_its_own_set_alone(path: str, name: str, tmp_path: Path) -> None:
    copy = copy_of_packages(tmp_path)
    with (copy / path).open("ab") as file:
        file.write(b" ")
    before, after = seal.sources(), seal.sources(copy)
    assert [n for n in before if seal.combined(before[n]) != seal.combined(after[n])] == [name]
    assert [p for p in before[name] if before[name][p] != after[name][p]] == [path]


def test_a_combined_digest_knows_names_and_contents_and_no_order() -> None:
    one, two = "1" * 64, "2" * 64
    by_hand = hashlib.sha256(f"a.py\0{one}\nb.py\0{two}\n".encode()).hexdigest()
    assert seal.combined({"b.py": two, "a.py": one}) == by_hand
    assert seal.combined({"a.py": two, "b.py": one}) != by_hand
    assert seal.combined({"c.py": one, "b.py": two}) != by_hand


# --- schedule -----------------------------------------------------------------------------------------------------


def test_pair_seeds_are_those_of_the_whole_registered_run() -> None:
    schedule = main_schedule()
    held = seal.pair_seeds(schedule, "naive", 40)
    assert seal.pair_seeds(override(schedule, pairs=20), "naive", 40) == held, "a shorter run has the same pairs"
    assert seal.pair_seeds(override(schedule, arms=("mesh",)), "mesh", 40) == held, "and so has one of other arms"
    assert seal.pair_seeds(schedule, "naive", 41) != held
    assert seal.pair_seeds(override(schedule, seed=1), "naive", 40) != held


def test_code_of_others_is_named() -> None:
    schedule = override(main_schedule(), arms=("naive", "mesh", "elsewhere.arms:ARM"))
    assert seal.foreign_code(main_schedule()) == ()
    assert seal.foreign_code(schedule) == ("elsewhere.arms:ARM",)


# --- packages -----------------------------------------------------------------------------------------------------


def test_installed_versions_are_compared_with_the_lock_file(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"numpy": "2.0.0", "scipy": "1.17.1"}

    def version(name: str) -> str:
        if name in installed:
            return installed[name]
        raise seal.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(seal.metadata, "version", version)
    lock = """\
# made by a tool
numpy==2.4.6 \\
    --hash=sha256:00 \\
    --hash=sha256:11
scipy==1.17.1 --hash=sha256:22
absent==1.0
scipy==9.9 ; python_version < "3.0"
"""
    assert seal.not_as_locked(lock) == ("numpy 2.0.0 is installed, locked is 2.4.6",)
    with pytest.raises(ConfigError, match="cannot read 'numpy = 2'"):
        seal.not_as_locked("numpy = 2\n")


def test_code_from_elsewhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").touch()
    shadow = tmp_path / "shadow"
    (shadow / "arms").mkdir(parents=True)
    (shadow / "arms" / "__init__.py").touch()

    def said(*folders: Path) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        code = "from harness import seal; print(*seal.from_elsewhere(), sep='\\n')"
        command = [sys.executable, "-P", "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    path = "PYTHONPATH names folders whose code no digest binds"
    assert said(ROOT) == [""], "the sealed folder itself may be named"
    assert said(ROOT, tmp_path) == [path, "sitecustomize is loaded, which no digest binds"]
    elsewhere = "arms is loaded from another folder than the one whose files were compared"
    assert said(shadow, ROOT) == [elsewhere, path]


def test_the_lock_file_is_the_nearest_one_above(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert seal.lock_file(deep / "x.yaml") is None or not seal.lock_file(deep / "x.yaml").is_relative_to(tmp_path)  # type: ignore[union-attr]
    (tmp_path / seal.LOCK).write_text("")
    (tmp_path / "a" / seal.LOCK).write_text("")
    assert seal.lock_file(deep / "x.yaml") == tmp_path / "a" / seal.LOCK


def test_what_cannot_be_computed_is_left_out_with_its_reason(tmp_path: Path) -> None:
    copy = copy_of_packages(tmp_path)
    now = seal.look(registration="0" * 64, near=tmp_path / "x" / "k.yaml", root=copy)
    assert set(now.absent) == {"schedule", "pair_seeds", "lock_file"}
    assert set(now.digests) | set(now.absent) == set(Digests.__struct_fields__)
    assert now.absent["lock_file"] == "there is no requirements.lock above the registration"
