"""A part to start from, under a name of its own: its file, a test, and a schedule that uses it. A metric needs none.

Why copies of parts that work: whoever starts from one sees it run before a line is written.
"""

from __future__ import annotations

import ast
import keyword
import re
import shutil
import sys
import sysconfig
from collections.abc import Container, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from harness import catalogue
from harness.conformance.kinds import Kind
from harness.core.errors import ConfigError
from harness.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
SKELETONS = ROOT / "harness" / "skeletons"
REGISTRATION = ROOT / "schedules" / "prereg" / "kill-criterion-001.yaml"

FILES: dict[Kind, tuple[str, ...]] = {
    "arm": ("example_arm.py",),
    "fault": ("example_fault.py",),
    "metric": ("example_metric.py",),
    "workload": ("example_workload.py", "example_oracle.py"),
}
"""Of each kind, the files that are copied; the first holds the part itself."""

TEST = '''"""`{name}` is {what} that the harness can work with."""

import pytest

from harness.conformance import Answer, answers


@pytest.mark.parametrize("answer", list(answers("{reference}")), ids=lambda answer: answer.question)
def test_conforms(answer: Answer) -> None:
    assert answer.passed, answer.because
'''

SCHEDULE = """# Start it in this folder: agentmesh {command} {name}.yaml
schema: agentmesh-schedule/1
name: {name}
version: 1
seed: 7
world: sim                 # live takes longer and is the real thing
workloads: {{{workload}: 1}}
pairs: 6
arms: [{arms}]
faults:
  exact:                   # in turn, one entry per pair; or mix: {{name: weight}}
{faults}
preregistration: prereg/{registration}
"""

WORDS: dict[Kind, str] = {"arm": "an arm", "fault": "a fault", "metric": "a metric", "workload": "a workload"}


def write(kind: Kind, name: str, folder: Path) -> list[Path]:
    """Write the files of a new part; their paths, the part first.

    Raises ConfigError for a name that is none in Python, that a part or a module has already, or that the file itself
    needs for something else; and where a file is there already. Nothing is written then.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} cannot be the name of {WORDS[kind]}", allowed="a-z, 0-9 and _, from a letter on")
    _check_free(kind, name)
    texts = dict(_texts(kind, name))
    there = [path for path in texts if (folder / path).exists()]
    if there:
        hint = "take another name, or remove it first"
        raise ConfigError("it is there already, and is not overwritten", where=str(folder / there[0]), hint=hint)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    if kind != "metric" and not (folder / "prereg" / REGISTRATION.name).exists():
        (folder / "prereg").mkdir(exist_ok=True)
        shutil.copy(REGISTRATION, folder / "prereg" / REGISTRATION.name)
    return [folder / path for path in texts]


def _check_free(kind: Kind, name: str) -> None:
    """Raises ConfigError for a name under which the new part would not be found, or be taken for another."""
    because = _taken(name)
    if not because:
        twice = sorted({n for path, text in _texts(kind, name) if path.endswith(".py") for n in _bound_twice(text)})
        because = f"the file would use {twice[0]} for two things" if twice else ""
    if because:
        hint = f"take another name, such as my_{name}"
        raise ConfigError(f"{name!r} cannot be the name of {WORDS[kind]}: {because}", hint=hint)


def _taken(name: str) -> str:
    """By what a name is taken, in words; empty when it is free."""
    known = catalogue.load()
    ours: dict[Kind, Container[str]] = {
        "arm": known.arms,
        "fault": known.faults,
        "workload": known.workloads,
        "metric": METRICS,
    }
    for kind, names in ours.items():
        if name in names:
            return f"{WORDS[kind]} of ours has it"
    if name in sys.stdlib_module_names:
        return "a module of Python's standard library has it, and that one is imported"
    places = dict.fromkeys([str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    found = PathFinder.find_spec(name, list(places))
    return "an installed package has it" if found is not None and found.loader is not None else ""


def _bound_twice(source: str) -> set[str]:
    """Names that the top level of a module binds more than once."""
    bound: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            bound.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            bound += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return {name for name in bound if bound.count(name) > 1}


def reference(kind: Kind, name: str) -> str:
    """How a schedule names the new part."""
    return f"{_module(FILES[kind][0], name)}:{_class(name) if kind == 'fault' else name.upper()}"


def _texts(kind: Kind, name: str) -> Iterator[tuple[str, str]]:
    for file in FILES[kind]:
        text = (SKELETONS / file).read_text(encoding="utf-8")
        for example in FILES["workload"]:  # the two of them know each other
            text = text.replace(f"harness.skeletons.{example[:-3]}", _module(example, name))
            text = text.replace(f'"{example[:-3]}:', f'"{_module(example, name)}:')
        text = text.replace("example", name).replace("Example", _class(name)).replace("EXAMPLE", name.upper())
        yield f"{_module(file, name)}.py", text
    named = reference(kind, name)
    yield f"test_{_module(FILES[kind][0], name)}.py", TEST.format(name=name, what=WORDS[kind], reference=named)
    if kind != "metric":
        yield f"{name}.yaml", _schedule(kind, name, named)


def _schedule(kind: Kind, name: str, named: str) -> str:
    faults = ["staging_crash", "hung_check", f'"{named}"' if kind == "fault" else "nondeterminism"]
    return SCHEDULE.format(
        name=name,
        command="eval",
        workload=f'"{named}"' if kind == "workload" else "codegen",
        arms=", ".join(["naive", "mesh", *([f'"{named}"'] if kind == "arm" else [])]),
        faults="\n".join(f"    - {{fault: {fault}}}" for fault in faults),
        registration=REGISTRATION.name,
    )


def _module(file: str, name: str) -> str:
    """The part itself is in a file of its name."""
    return f"{name}_oracle" if file.endswith("_oracle.py") else name


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
