"""Files of waivers: strict, signed, dated."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arms.mesh.m2_exoneration import boot_check
from arms.mesh.waiver import FILE_VARIABLE, TODAY_VARIABLE, Waiver, from_environment, load_waivers, waived
from harness.cli import app
from harness.core.errors import ConfigError

DIGEST = "ab" * 32
GOOD = f"""schema: agentmesh-waiver/1
waivers:
  - who: A. Person
    why: agreed in review
    until: 2026-12-31
    what: write_set
    digest: {DIGEST}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "waivers.yaml"
    path.write_text(text)
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    (one,) = load_waivers(write(tmp_path, GOOD), date(2026, 12, 31))
    assert one == Waiver(
        who="A. Person", why="agreed in review", until=date(2026, 12, 31), what="write_set", digest=DIGEST
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("A. Person", '""', "not signed"),
        ("agreed in review", '" "', "no reason"),
        ("2026-12-31", "2026-01-31", "expired on 2026-01-31"),
        ("2026-12-31", "soon", "until"),
        (DIGEST, "abc", "no sha256"),
        ("what: write_set", "gate: write_set", "gate"),
        ("    why: agreed in review\n", "", "why"),
        ("agentmesh-waiver/1", "agentmesh-waiver/2", "schema"),
        ("what: write_set", "what: write_set\n    what: any", "given twice"),
        ("waivers:", "waivers: [", "YAML"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_reason(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=said) as error:
        load_waivers(path, date(2026, 6, 1))
    assert str(path) in str(error.value)


def test_the_same_call_is_not_waived_twice(tmp_path: Path) -> None:
    entry = GOOD.partition("waivers:\n")[2]
    with pytest.raises(ConfigError, match="twice"):
        load_waivers(write(tmp_path, GOOD + entry))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_waivers(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("what", "digest", "today", "found"),
    [
        ("write_set", DIGEST, date(2026, 12, 31), True),
        ("write_set", DIGEST, date(2027, 1, 1), False),
        ("write_set", "cd" * 32, date(2026, 1, 1), False),
        ("registry fetch wheel", DIGEST, date(2026, 1, 1), False),
    ],
)
def test_which_call_is_waived(tmp_path: Path, what: str, digest: str, today: date, found: bool) -> None:
    assert (waived(load_waivers(write(tmp_path, GOOD)), what, digest, today) is not None) is found


def test_the_environment_names_file_and_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    assert from_environment() == ((), None)
    monkeypatch.setenv(FILE_VARIABLE, str(write(tmp_path, GOOD)))
    monkeypatch.delenv(TODAY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=TODAY_VARIABLE):
        from_environment()
    monkeypatch.setenv(TODAY_VARIABLE, "2026-06-01")
    waivers, today = from_environment()
    assert (len(waivers), today) == (1, date(2026, 6, 1))
    monkeypatch.setenv(TODAY_VARIABLE, "2027-06-01")
    with pytest.raises(ConfigError, match="expired"):
        from_environment()
    monkeypatch.delenv(FILE_VARIABLE)
    with pytest.raises(ConfigError, match=f"{TODAY_VARIABLE} is set and {FILE_VARIABLE} is not"):
        from_environment()


def test_a_waiver_of_a_gate_that_nobody_has_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace("write_set", "writeset")
    assert text != GOOD
    monkeypatch.setenv(FILE_VARIABLE, str(write(tmp_path, text)))
    monkeypatch.setenv(TODAY_VARIABLE, "2026-06-01")
    with pytest.raises(ConfigError, match=r"names the gate 'writeset'.*did you mean 'write_set'"):
        boot_check()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"schema: agentmesh-waiver/1\nwaivers: &a\n- *a\n", "alias"),
        (b"a0: &a [x, x]\na1: &b [*a, *a]\n", "alias"),
        (b"schema: " + b"[" * 5000, "nested too deeply"),
        (GOOD.replace("2026-12-31", "2026-13-45").encode(), "until cannot be read as a value"),
        (GOOD.replace("2026-12-31", "2026-12-31 10:00:00").encode(), "until"),
        (GOOD.replace("agreed in review", "!!python/object:os.x {}").encode(), "tag"),
    ],
)
def test_the_arm_does_not_start_with_waivers_that_cannot_be_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes, said: str
) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_bytes(raw)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    monkeypatch.setenv(TODAY_VARIABLE, "2026-06-01")
    with pytest.raises(ConfigError, match=said) as refused:
        boot_check()
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "today", "said"),
    [("none.yaml", "2026-06-01", "cannot read"), (".", "2026-06-01", "regular file"), ("x", "yesterday", "YYYY-MM-DD")],
)
def test_nor_without_the_file_or_the_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, today: str, said: str
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / file))
    monkeypatch.setenv(TODAY_VARIABLE, today)
    with pytest.raises(ConfigError, match=said):
        boot_check()


@pytest.mark.parametrize(
    "words",
    [("eval", "schedules/smoke.yaml"), ("run", "schedules/smoke.yaml"), ("incidents", "schedules/incidents/I06.yaml")],
)
def test_a_command_that_would_use_them_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "none.yaml"))
    monkeypatch.setenv(TODAY_VARIABLE, "2026-06-01")
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "none.yaml: cannot read" in done.stderr
    assert not (tmp_path / "out").exists()
