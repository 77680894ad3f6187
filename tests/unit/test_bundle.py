"""Bundles: archives that are the same for the same content, archives that are refused, metadata, rule, environment."""

from __future__ import annotations

import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import seal
from harness.core.errors import ConfigError
from harness.replication import archive, crate, environment, layout, sources
from harness.replication.differ import file_difference
from harness.replication.opened import NoRoom, no_room, opened
from harness.replication.rule import rule_of

DIGEST = "a" * 64


def packed(folder: Path, contents: dict[str, Path | bytes], name: str = "one.zip") -> Path:
    archive.write(folder / name, contents)
    return folder / name


# --- archive ------------------------------------------------------------------------------------------------------


def test_the_same_content_gives_the_same_bytes_whatever_its_order_time_and_mode(tmp_path: Path) -> None:
    text = "a,b\n" * 1000
    (tmp_path / "x.csv").write_text(text)
    first = packed(tmp_path, {"b/x.csv": tmp_path / "x.csv", "a.seg": b"\0\1"})
    os.utime(tmp_path / "x.csv", (1, 1))
    (tmp_path / "x.csv").chmod(0o600)
    second = packed(tmp_path, {"a.seg": b"\0\1", "b/x.csv": text.encode()}, "two.zip")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as held:
        assert [(m.filename, m.date_time[0], m.external_attr >> 16) for m in held.infolist()] == [
            ("a.seg", 1980, 0o100644),
            ("b/x.csv", 1980, 0o100644),
        ]


def test_what_was_packed_comes_back(tmp_path: Path) -> None:
    target = packed(tmp_path, {"run/trace/0001.seg": b"\0" * 100, "README.md": b"read"})
    (tmp_path / "out").mkdir()
    assert archive.unpack(target, tmp_path / "out") == []
    assert (tmp_path / "out/run/trace/0001.seg").read_bytes() == b"\0" * 100
    assert (tmp_path / "out/README.md").read_bytes() == b"read"


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> Callable[[zipfile.ZipFile], None]:
    def add(held: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, mode << 16
        held.writestr(info, b"text")

    return add


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("../out.txt", stat.S_IFREG, "no path within it"),
        ("a/../../out.txt", stat.S_IFREG, "no path within it"),
        ("/etc/out.txt", stat.S_IFREG, "no path within it"),
        ("a\\..\\out.txt", stat.S_IFREG, "no path within it"),
        ("c:out.txt", stat.S_IFREG, "no path within it"),
        ("a//b", stat.S_IFREG, "no path within it"),
        ("a\nb", stat.S_IFREG, "no path within it"),
        ("\x1b[31mred", stat.S_IFREG, "no path within it"),
        ("link", stat.S_IFLNK | 0o777, "no plain file"),
        ("device", stat.S_IFCHR | 0o600, "no plain file"),
    ],
)
def test_members_that_would_leave_the_folder_are_refused(tmp_path: Path, name: str, mode: int, said: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as held:
        member("README.md")(held)
        member(name, mode)(held)
    (tmp_path / "in" / "out").mkdir(parents=True)
    with pytest.raises(ConfigError, match=said):
        archive.unpack(tmp_path / "bad.zip", tmp_path / "in" / "out")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["bad.zip", "in", "out"]


def test_a_member_may_not_be_a_file_and_a_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as held:
        member("run")(held)
        member("run/manifest.json")(held)
    with pytest.raises(ConfigError, match="'run' is no path within it"):
        archive.unpack(tmp_path / "bad.zip", tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as held:
        member("a")(held)
        member("a")(held)
    with pytest.raises(ConfigError, match="two members of one name"):
        archive.unpack(tmp_path / "bad.zip", tmp_path)


def test_an_archive_that_grows_beyond_reason_is_refused_before_it_grows(tmp_path: Path) -> None:
    target = packed(tmp_path, {"zeros.txt": b"\0" * (archive.FREE_BYTES + 1)})
    assert target.stat().st_size < 100_000
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="would become 67108"):
        archive.unpack(target, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_member_that_lies_about_its_size_is_damaged(tmp_path: Path) -> None:
    """The announced size is in two places; nothing beyond it is ever read."""
    target = packed(tmp_path, {"a.txt": b"x" * 1000})
    raw = target.read_bytes().replace(struct.pack("<I", 1000), struct.pack("<I", 10))
    target.write_bytes(raw)
    (tmp_path / "out").mkdir()
    assert archive.unpack(target, tmp_path / "out") == ["a.txt"]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_byte_changed_in_the_archive_names_its_member(tmp_path: Path) -> None:
    target = packed(tmp_path, {"a.seg": b"left alone", "b.seg": b"changed here"})
    target.write_bytes(target.read_bytes().replace(b"changed here", b"changed hera"))
    (tmp_path / "out").mkdir()
    assert archive.unpack(target, tmp_path / "out") == ["b.seg"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.seg"]


@pytest.mark.parametrize("cut", [0, 1, 10, 200])
def test_an_archive_that_is_cut_off_is_bad_input(tmp_path: Path, cut: int) -> None:
    target = packed(tmp_path, {"a.txt": os.urandom(400)})
    target.write_bytes(target.read_bytes()[:cut])
    with pytest.raises(ConfigError, match=r"this is no bundle: .*was it downloaded whole"):
        archive.unpack(target, tmp_path)


def test_any_zip_is_not_yet_a_bundle(tmp_path: Path) -> None:
    target = packed(tmp_path, {"a.txt": b"text"})
    with pytest.raises(ConfigError, match="the archive holds no run"), opened(target):
        pass
    with pytest.raises(ConfigError, match="neither a run nor a bundle"), opened(tmp_path / "nowhere.zip"):
        pass
    with pytest.raises(ConfigError, match="no run in this folder"), opened(tmp_path):
        pass


def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr(archive, "_add", full)
    with pytest.raises(ConfigError, match=r"the disk is full .*no archive was written; make room") as caught:
        packed(tmp_path, {"a.txt": b"text"})
    assert list(tmp_path.iterdir()) == []
    assert no_room(caught.value)
    assert not no_room(ConfigError("something else"))
    assert issubclass(NoRoom, ConfigError)


# --- what is in it ------------------------------------------------------------------------------------------------


def test_sources_are_all_files_that_a_seal_binds_and_nothing_of_this_machine() -> None:
    held = sources.files()
    assert {path for names in seal.sources().values() for path in names} <= set(held)
    assert {"harness/cli.py", "harness/report/report.md.j2", "schedules/main.yaml", seal.LOCK} <= set(held)
    assert not [name for name in held if name.startswith(("/", ".")) or "__pycache__" in name or ".pyc" in name]


def test_differing_sources_are_named_where_they_matter() -> None:
    first = {"harness/score.py": "1", "arms/bare.py": "1", "harness/stats/old.py": "1", "harness/cli.py": "1", "x": "1"}
    second = {
        "harness/score.py": "2",
        "arms/bare.py": "2",
        "harness/stats/new.py": "1",
        "harness/cli.py": "2",
        "x": "2",
    }
    analysis = {
        "harness/score.py": "changed",
        "harness/stats/new.py": "only here",
        "harness/stats/old.py": "missing here",
    }
    assert sources.differing(first, second, running=False) == analysis
    assert sources.differing(first, second) == {"arms/bare.py": "changed", **analysis}


def manifest(world: str = "sim", **document: Any) -> dict[str, Any]:
    machine = {"platform": "Linux-6.1-x86_64", "processor": "x86_64", "cores": 2, "python": "3.11.9"}
    return {
        "schedule": {"name": "small", "sha256": DIGEST, "resolved": {}},
        "preregistration": {"id": "kc", "document": {"arms": {"control": "naive", "treatment": "mesh"}, **document}},
        "world": world,
        "arms": ["naive", "journaled", "mesh"],
        "started": "2030-01-01T00:00:00Z",
        "ended": "2030-01-01T01:00:00Z",
        "starts": [{"git": {"commit": "c0ffee"}, "packages": {"numpy": "2.4.6"}, "machine": machine}],
    }


def test_metadata_are_a_crate_by_the_book() -> None:
    """What RO-Crate 1.1 asks for: one flat graph, a descriptor, a root with name, description, date and license, and
    every data entity among its parts."""
    paths = ["README.md", "run/manifest.json", "run/trials.jsonl", "source/harness/cli.py"]
    made = crate.metadata(manifest(), dict.fromkeys(paths, 7), dict.fromkeys(paths, DIGEST))
    assert made["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    entities = {one["@id"]: one for one in made["@graph"]}
    assert len(entities) == len(made["@graph"])
    descriptor, root = entities["ro-crate-metadata.json"], entities["./"]
    assert descriptor["@type"] == "CreativeWork"
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert descriptor["about"] == {"@id": "./"}
    assert root["@type"] == "Dataset"
    assert root["datePublished"] == "2030-01-01T01:00:00Z"
    assert {"name", "description", "license"} <= root.keys()
    assert [part["@id"] for part in root["hasPart"]] == [*paths, "digests.json"]
    assert all(entities[part["@id"]]["@type"] == "File" for part in root["hasPart"])
    assert entities["run/trials.jsonl"]["contentSize"] == "7"
    assert entities["run/trials.jsonl"]["sha256"] == DIGEST
    assert entities["#run"]["result"] == [{"@id": "run/trials.jsonl"}]
    referred = {ref["@id"] for one in entities.values() for ref in _references(one)}
    assert referred - entities.keys() == {"https://w3id.org/ro/crate/1.1", "schedule.json", "preregistration.json"}


def _references(value: Any) -> list[dict[str, str]]:
    if isinstance(value, list):
        return [ref for item in value for ref in _references(item)]
    if isinstance(value, dict):
        return [value] if set(value) == {"@id"} else [ref for item in value.values() for ref in _references(item)]
    return []


# --- rule and environment -----------------------------------------------------------------------------------------


def test_the_rule_is_the_registrations_where_it_has_one() -> None:
    rule = rule_of(manifest("live", replication={"margin_duplicates": 0.2, "margin_work_share": 0.3, "alpha": 0.01}))
    assert (rule.test, rule.arms, rule.registered) == ("equivalence", ("naive", "mesh"), True)
    assert (rule.margin_duplicates, rule.margin_work_share, rule.alpha) == (0.2, 0.3, 0.01)
    default = rule_of(manifest())
    assert (default.test, default.registered) == ("byte_equality", False)
    assert (default.margin_duplicates, default.margin_work_share, default.alpha) == (0.1, 0.1, 0.05)
    assert "by default, since the registration says nothing" in crate.readme(
        manifest("live"), rule_of(manifest("live"))
    )
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        rule_of(manifest(replication={"alpha": 0}))


def test_only_locked_packages_count_and_names_are_compared_as_pip_does() -> None:
    lock = "numpy==2.4.6 \\\n    --hash=sha256:aa\npsycopg[binary]==3.2.1\nRuamel_Yaml==1.0\n"
    names = environment.pinned(lock)
    assert names == {"numpy", "psycopg", "ruamel-yaml"}
    first = {"numpy": "2.4.6", "ruamel.yaml": "1.0", "left": "1"}
    second = {"NumPy": "2.5.0", "ruamel_yaml": "1.0", "right": "1"}
    assert environment.package_changes(first, second, names) == ["numpy: 2.4.6 -> 2.5.0"]
    assert environment.package_changes(first, second) == [
        "left: 1 -> not installed",
        "numpy: 2.4.6 -> 2.5.0",
        "right: not installed -> 1",
    ]


def test_what_of_a_machine_counts() -> None:
    machine = {"platform": "Linux-6.1.0-x86_64-with-glibc2.36", "processor": "x86_64", "cores": 64, "python": "3.11.9"}
    assert environment.capabilities(machine) == {"python": "3.11", "processor": "x86_64", "system": "Linux"}


# --- what differs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "held", "made", "said"),
    [
        ("summary.json", {"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] is 2, made again 3"),
        ("summary.json", {"a": 1, "b": 1}, {"b": 1}, "a is 1, made again (absent)"),
        ("summary.json", {"a": 1}, {"a": 1.0}, "a is 1, made again 1.0"),
        ("summary.json", {"a": True}, {"a": 1}, "a is true, made again 1"),
        ("s.json", {str(i): 0 for i in range(9)}, {str(i): 1 for i in range(9)}, "6 more keys differ"),
        ("s.json", {"a": 0.1}, {"a": 0.1 + 1e-16}, "differ by rounding alone"),
    ],
)
def test_json_that_differs_is_named_by_key(name: str, held: Any, made: Any, said: str) -> None:
    assert said in file_difference(name, json.dumps(held).encode(), json.dumps(made).encode())


def test_other_files_are_named_by_line_or_byte() -> None:
    assert file_difference("rows.jsonl", b'{"a":1}\n{"a":2}\n', b'{"a":1}\n{"a":3}\n') == "line 2: a is 2, made again 3"
    assert file_difference("rows.jsonl", b'{"a":1}\n', b'{"a":1}\n{"a":3}\n').startswith("line 2: ''")
    assert file_difference("metrics.csv", b"a\nb,1\n", b"a\nb,2\n") == "line 2: 'b,1', made again 'b,2'"
    assert file_difference("p.png", b"\x89P1", b"\x89P2") == "differs from byte 2 on (3 bytes, made again 3)"
    assert file_difference("s.json", b'{"a": 1}', b'{"a":1}') == "has the same values in another layout"
    assert file_difference("s.json", b"{", b'{"a":1}').startswith("is no JSON, or another text")
    assert file_difference("s.json", b"{}", b"{}") == ""


def test_every_file_of_a_run_is_either_sealed_or_derived_or_no_part_of_it(tmp_path: Path) -> None:
    names = ("manifest.json", "trace/0001.seg", "plots/a.svg", "tables/b.tex", "calibration.json", "rows.jsonl")
    for name in (*names, "lock", "failure.txt", "rows.jsonl.new", "store.duckdb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(layout.sealed(tmp_path)) == ["calibration.json", "manifest.json", "trace/0001.seg"]
    assert list(layout.derived(tmp_path)) == ["plots/a.svg", "rows.jsonl", "tables/b.tex"]
