"""Tables of incidents: whole or as before, and refused in one line where nothing can be written."""

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.incidents import tables


def test_a_table_replaces_the_one_before_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tables.folder(tmp_path / "deep" / "er") / "t.csv"
    tables.write(path, ["a", "b"], [[1, "x"], [2, "y,z"]])
    tables.write(path, ["a"], [[3]])
    assert path.read_text(encoding="utf-8").split() == ["a", "3"]
    assert [one.name for one in path.parent.iterdir()] == ["t.csv"]


def test_what_stood_there_survives_a_row_that_cannot_be_made(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    tables.write(path, ["a"], [[1]])
    with pytest.raises(ZeroDivisionError):
        tables.write(path, ["a"], ([1 // n] for n in (1, 0)))
    assert path.read_text(encoding="utf-8").split() == ["a", "1"]
    assert [one.name for one in tmp_path.iterdir()] == ["t.csv"]


def test_a_folder_that_cannot_be_had_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot write tables here"):
        tables.folder(tmp_path / "file" / "under")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(ConfigError, match=r"t\.csv: cannot write the table"):
        tables.write(tmp_path / "t.csv", ["a"], [[1]])
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".new")] == []
