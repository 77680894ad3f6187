"""Policy files of the control plane: one that cannot be used is refused in one line by every command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arms.mesh.control import strict
from arms.mesh.control.budget import BudgetPolicy
from arms.mesh.control.kinds import ToolPolicy
from harness.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
CONTROL = ROOT / "arms" / "mesh" / "control"
BUDGET = (CONTROL / "budget.yaml").read_bytes()
TOOLS = (CONTROL / "tools.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00junk", "not UTF-8"),
        (BUDGET + b"\n: [}\n", "not valid YAML"),
        (BUDGET + b"\nzzz: 1\n", "zzz"),
        (BUDGET + b"\nversion: 1\n", "given twice"),
        (b"version: " + b"[" * 5000, "nested too deeply"),
        (b"version: 1\nladder: [1, 2]\nceilings: {}\nallowances: {}\ncredit: 1\n", "the ladder is"),
    ],
)
def test_a_broken_policy_is_refused_with_its_file(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "budget.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=said) as refused:
        strict.load(path, BudgetPolicy)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot read"):
        strict.load(tmp_path / "none.yaml", BudgetPolicy)


def test_a_kind_that_is_looked_for_has_words(tmp_path: Path) -> None:
    path = tmp_path / "tools.yaml"
    path.write_text(TOOLS.replace("\n  wait:", "\n  terminal:", 1), encoding="utf-8")
    with pytest.raises(ConfigError, match="no words for wait") as refused:
        strict.load(path, ToolPolicy)
    assert str(path) in str(refused.value)


def test_a_pattern_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml: shapes\[0\] is no regular expression"):
        strict.pattern("([", tmp_path / "x.yaml", "shapes[0]")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("breaker.yaml", None, ""), ("canonicalization.yaml", "shapes:", 'shapes:\n  - "(["'), ("tools.yaml", None, "[")],
)
def test_every_command_says_so_in_one_line(tmp_path: Path, name: str, old: str | None, new: str) -> None:
    for package in ("arms", "faults", "harness", "workloads"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "arms" / "mesh" / "control" / name
    path.write_text(new if old is None else path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from harness.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "list", "arms"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"agentmesh: {path}")
    assert done.stderr.count("\n") == 1
