"""`agentmesh check` finds what is wrong with a part, and `agentmesh new` writes parts with which nothing is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer import Typer
from typer.testing import CliRunner

from harness.commands import parts
from harness.conformance import Answer, answers, kind_of, runs, skeleton
from harness.core.errors import ConfigError
from harness.core.records import Metric, NotApplicable, ScoredTrial
from harness.score import oracle_of

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("arm", "fault", "metric", "workload")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that can be imported from, with all skeletons in it; what was imported is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    for kind in KINDS:
        skeleton.write(kind, f"mine_{kind}", tmp_path)
    yield tmp_path
    oracle_of.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("mine_"):
            del sys.modules[name]


def failed(name: str) -> list[Answer]:
    return [answer for answer in answers(name) if not answer.passed]


def edited(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


# --- what new writes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_conforms(folder: Path, kind: str) -> None:
    reference = skeleton.reference(kind, f"mine_{kind}")
    assert kind_of(reference) == kind
    assert failed(reference) == []


def test_the_test_that_is_written_passes_and_its_schedule_runs(folder: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "test_mine_workload.py"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "lint",
        *(f"mine_{kind}.yaml" for kind in KINDS if kind != "metric"),
    ]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_overwritten_and_bad_names_are_refused(folder: Path) -> None:
    (folder / "mine_arm.py").write_text("precious")
    with pytest.raises(ConfigError, match="not overwritten"):
        skeleton.write("arm", "mine_arm", folder)
    assert (folder / "mine_arm.py").read_text() == "precious"
    for name in ("Mine", "my-arm", "class", "", "../up"):
        with pytest.raises(ConfigError, match="cannot be the name"):
            skeleton.write("arm", name, folder)


@pytest.mark.parametrize(("kind", "name"), [("arm", "v2"), ("arm", "x"), ("fault", "x"), ("workload", "x")])
def test_a_name_of_one_capital_letter_is_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in (name, f"{name}_oracle"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    skeleton.write(kind, name, tmp_path)
    try:
        assert failed(skeleton.reference(kind, name)) == []
    finally:
        oracle_of.cache_clear()
        for module in (name, f"{name}_oracle"):
            sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("kind", "name", "because"),
    [
        ("arm", "json", "standard library"),
        ("arm", "msgspec", "an installed package"),
        ("workload", "harness", "an installed package"),
        ("arm", "naive", "an arm of ours"),
        ("metric", "hung_check", "a fault of ours"),
        ("workload", "stream", "the file would use STREAM for two things"),
        ("fault", "call", "the file would use Call for two things"),
    ],
)
def test_a_name_that_could_not_be_found_is_refused_in_words(tmp_path: Path, kind: str, name: str, because: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be the name of an? {kind}: .*{because}"):
        skeleton.write(kind, name, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- what check finds ---------------------------------------------------------------------------------------------


def test_an_arm_that_loses_effects(folder: Path) -> None:
    edited(folder, "mine_arm.py", "outcome = await next(call)", "outcome = Ok(value={}, receipt=None)")
    edited(folder, "mine_arm.py", "import EffectCall, Outcome", "import EffectCall, Ok, Outcome")
    wrong = {answer.question: answer.because for answer in failed("mine_arm:MINE_ARM")}
    (quiet,) = [because for question, because in wrong.items() if "without faults" in question]
    assert "over_suppressed" in quiet


def test_an_arm_that_draws_by_chance(folder: Path) -> None:
    edited(folder, "mine_arm.py", '"boundary": call.boundary', '"boundary": str(id(call)) + str(random.random())')
    edited(folder, "mine_arm.py", "from arms.naive", "import random\n\nfrom arms.naive")
    wrong = failed("mine_arm:MINE_ARM")
    assert [answer.question for answer in wrong] == ["the same trial again gives the same bytes"]
    assert "the trace differs from event" in wrong[0].because


def test_an_arm_that_raises(folder: Path) -> None:
    edited(folder, "mine_arm.py", "outcome = await next(call)", "raise RuntimeError('broken')")
    assert failed("mine_arm:MINE_ARM")


def test_a_fault_that_never_strikes_and_one_that_is_not_pure(folder: Path) -> None:
    edited(folder, "mine_fault.py", "view.fired < self.calls", "view.fired < 0")
    wrong = failed("mine_fault:MineFault")
    assert [answer.because for answer in wrong] == ["it fired in none of 4 trials of the arm bare"] * 2


def test_a_fault_that_says_two_things_about_one_call(folder: Path) -> None:
    edited(folder, "mine_fault.py", 'Fail(code="http-503")', 'Fail(code=f"http-{next(CODES)}")')
    edited(folder, "mine_fault.py", "class MineFaultFault", "CODES = itertools.count(500)\n\n\nclass MineFaultFault")
    edited(folder, "mine_fault.py", "from typing", "import itertools\nfrom typing")
    assert "its fates are pure" in [answer.question for answer in failed("mine_fault:MineFault")]


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ('return f"T-{seed % 10_000}"', 'return f"T-{seed % 10_000}-{id(object())}"', "without faults"),
        ('intended = {"transport": 1}', 'intended = {"transport": 2}', "its oracle can be found"),
        ('"example_oracle', '"nowhere', "its oracle can be found"),
        ('"acceptance", "flow")', '"acceptance", "flow", visit=9)', "every site that is offered"),
    ],
)
def test_a_workload(folder: Path, old: str, new: str, question: str) -> None:
    old = old.replace("example", "mine_workload")
    edited(folder, "mine_workload.py", old, new)
    assert any(question in answer.question for answer in failed("mine_workload:MINE_WORKLOAD"))


def test_an_oracle_that_reads_too_little(folder: Path) -> None:
    edited(folder, "mine_workload_oracle.py", "f\"{effect.get('stream', effect.get('target'))}/", 'f"{STREAM}/')
    (wrong,) = failed("mine_workload:MINE_WORKLOAD")
    assert wrong.question == "its oracle finds harm that is planted, and nothing else"


def metric(of: object) -> Metric:
    return Metric(name="m", unit="u", better="lower", about="a", source="s", of=of)  # type: ignore[arg-type]


def test_metrics_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.conformance import metrics

    scored = list(metrics._scored())[:2]
    monkeypatch.setattr(metrics, "_scored", lambda: iter(scored))
    cases: dict[str, tuple[object, str]] = {
        "nan": (lambda one: float("nan"), "of each it gives a finite number"),
        "none": (lambda one: None, "of each it gives a finite number"),
        "flag": (lambda one: True, "of each it gives a finite number"),
        "silent": (lambda one: NotApplicable(""), "of each it gives a finite number"),
        "never": (lambda one: NotApplicable("not here"), "it is a number of at least one"),
        "raises": (_raises, "of each it gives a finite number"),
    }
    for name, (of, question) in cases.items():
        monkeypatch.setattr(metrics, "find", lambda _, of=of: metric(of))
        wrong = [answer.question for answer in metrics.questions("any") if not answer.passed]
        assert any(question in one for one in wrong), name
    monkeypatch.setattr(metrics, "find", lambda _: replace(metric(lambda one: 1.0), name="task_success", source=""))
    (wrong_name,) = [answer for answer in metrics.questions("any") if not answer.passed]
    assert wrong_name.because == "it has no source; there is a metric 'task_success' already"


def _raises(scored: ScoredTrial) -> float:
    raise LookupError("no such key")


# --- the commands -------------------------------------------------------------------------------------------------


def test_names_that_stand_for_nothing() -> None:
    for name, told in (
        ("nothing", "nothing is called"),
        ("nowhere:X", "cannot import nowhere"),
        ("json:dumps", "is a function"),
    ):
        with pytest.raises(ConfigError, match=told):
            kind_of(name)


def test_the_command_exits_by_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Typer()
    parts.add(app)
    monkeypatch.setattr("harness.conformance.kind_of", lambda name: "arm")
    for found, code in (([Answer("a")], 0), ([Answer("a"), Answer("b", "because of c")], 1)):
        monkeypatch.setattr("harness.conformance.answers", lambda name, found=found: iter(found))
        done = CliRunner().invoke(app, ["check", "any"])
        assert done.exit_code == code
        assert ("because of c" in done.output) is bool(code)


def test_trials_of_a_check_are_those_of_a_schedule() -> None:
    one, other = (runs.spec("bare", "codegen", "staging_crash", ("before_stage",), pair) for pair in (0, 1))
    assert (one.variants, one.index, other.index) == (("before_stage",) * 2, 0, 1)
    assert one.seed != other.seed
