"""Receipts of check runs, checkpoints that their processes report, and the reads that expect exactly so many events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.core.clock import Clock, VirtualLoop
from harness.core.roles import Task
from harness.core.types import Attempt, CheckSpec, Ok, Seam, Site, ToolCall
from harness.world import checkpoints, receipts
from harness.world.sim.world import SimProcess, SimWorld
from workloads.relay.task import RELAY

UNIT = CheckSpec(name="unit", kind="pytest", target="tests/test_unit.py")
FILES = {"a.py": "x = 1\n", "a.lock": "meshmoney==1.2.0\n", "__pycache__/a.pyc": "junk"}


def parts_of(spec: CheckSpec, texts: dict[str, str], tools: tuple[str, ...] = ()) -> list[str]:
    return receipts.receipt(spec, receipts.of_texts(texts), tools).split("|")


BASE = parts_of(UNIT, FILES)
OTHER = CheckSpec(name="other", kind="pytest", target="tests/test_unit.py")


@pytest.mark.parametrize(
    ("spec", "texts", "tools", "changed"),
    [
        (UNIT, FILES, (), set()),
        (UNIT, {**FILES, "__pycache__/b.pyc": "other junk"}, (), set()),
        (UNIT, {**FILES, "a.py": "x = 2\n"}, (), {0}),
        (UNIT, {**FILES, "b.py": ""}, (), {0}),
        (UNIT, {**FILES, "a.lock": "meshmoney==1.3.0\n"}, (), {0, 1}),
        (UNIT, FILES, ("3.12.1",), {1}),
        (OTHER, FILES, (), {2}),
        (CheckSpec(name="unit", kind="node", target="tests/test_unit.py"), FILES, (), {1, 2}),
    ],
)
def test_each_part_of_a_receipt_is_about_one_thing(spec: Any, texts: Any, tools: Any, changed: set[int]) -> None:
    parts = parts_of(spec, texts, tools)
    assert {n for n in range(3) if parts[n] != BASE[n]} == changed
    assert {len(part) for part in parts} == {receipts.DIGITS}


def test_a_folder_has_the_digests_of_its_texts_also_after_it_changed(tmp_path: Path) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    digests = receipts.FolderDigests()
    assert digests.of(tmp_path) == receipts.of_texts(FILES)
    before = os.stat(tmp_path / "a.py")
    (tmp_path / "new").write_text("x = 2\n")
    os.utime(tmp_path / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "new").replace(tmp_path / "a.py")
    (tmp_path / "a.lock").unlink()
    assert digests.of(tmp_path) == receipts.of_texts({"a.py": "x = 2\n"})


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('["c", "route-read", "a/b"]', True),
        ('["c", "route-read", "a/b", "payload"]', False),
        ('["c", "route-read", {"payload": 1}]', False),
        ('{"c": 1}', False),
        ('["c", "route-re', False),
        (json.dumps(["c", "s", "n" * (checkpoints.NAME_CHARACTERS_MAX + 1)]), False),
        ("", False),
    ],
)
def test_a_checkpoint_is_three_short_names(line: str, kept: bool) -> None:
    assert bool(checkpoints.from_lines([line])) is kept


def test_no_more_checkpoints_than_allowed_are_kept() -> None:
    lines = [json.dumps(["c", "s", str(n)]) for n in range(100)]
    assert checkpoints.from_lines(lines) == [["c", "s", str(n)] for n in range(checkpoints.ENTRIES_MAX)]


# --- a check in the sim world -------------------------------------------------------------------------------------


class Scripted:
    """A workload whose one check does as its scenario says."""

    def unit_failures(self, check: CheckSpec, files: Any) -> tuple[str, ...]:
        return ()

    def steps(self, check: CheckSpec, files: Any, steps: list) -> list:
        return steps


def answered(steps: list[dict[str, Any]], runs: int = 1) -> list[Ok]:
    """The answers of so many runs of a check with these steps."""
    task: Task = RELAY.task(1, 0)
    check = CheckSpec(name="check", kind="pytest", target="t.py", scenario="flow.json")
    files = {"flow.json": json.dumps({"steps": steps})}
    fields = {name: getattr(task, name) for name in Task.__struct_fields__}
    task = Task(**{**fields, "files": files, "checks": (check,)})
    site = Site(delegation="stock", phase="p", seam=Seam.TOOL, name="run_check")

    async def play() -> list[Ok]:
        arm = type("A", (), {"contained": True, "variation_stream": 0})
        outside = SimWorld(task, Scripted(), arm, Clock())  # type: ignore[arg-type]
        world = outside.seen_by(SimProcess(), lambda *_: None)
        world.bind(lambda call: world.effect(call, None))
        await world.begin(Attempt(delegation=task.delegation("stock")))
        return [
            await world.tool(  # type: ignore[misc]
                ToolCall(
                    site=site, call_id=f"t{n}", attempt=1, turn=n, index=0, tool="run_check", args={"check": "check"}
                ),
                None,
            )
            for n in range(runs)
        ]

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(play())
    finally:
        loop.close()


PUBLISH = {"do": "publish", "stream": "mail", "event": {"type": "sent", "subject": "A"}}
ONCE = {"do": "expect_events", "stream": "mail", "type": "sent", "subject": "A", "exactly": 1}


def test_a_check_that_expects_one_event_passes_once() -> None:
    first, second = answered([PUBLISH, {**PUBLISH, "event": {"type": "sent", "subject": "B"}}, ONCE], runs=2)
    assert (first.value["passed"], second.value["passed"]) == (True, False)
    assert first.receipt == second.receipt


def test_reached_checkpoints_are_told_and_those_after_a_failure_are_not() -> None:
    point = {"do": "checkpoint", "entry": ["c", "s", "n"]}
    (answer,) = answered([point, {"do": "blocked"}, point, PUBLISH, ONCE])
    assert answer.value == {"passed": False, "failing": ["t.py::test_flow"], "checkpoints": [["c", "s", "n"]]}


def test_a_test_that_fails_leaves_out_its_own_steps_only() -> None:
    steps = [{"do": "blocked", "test": "t.py::test_a"}, {**PUBLISH, "test": "t.py::test_a"}, PUBLISH, ONCE]
    (answer,) = answered(steps)
    assert answer.value == {"passed": False, "failing": ["t.py::test_a"]}
