"""The preview of a generated shop as a real check: agreement with the sim world, and of two instruments."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from harness.world.files import DiskFiles
from harness.world.live.checks import CheckResult, CheckRunner, RunningCheck
from harness.world.live.zygote import start_zygote
from harness.world.preview import chromium
from tests.browser import browser  # noqa: F401 (a fixture)
from workloads.common.defects import Defect, planted
from workloads.preview.facts import DEFECTS, POOL, TARGET, facts
from workloads.preview.repository import SERVICES, back_end, delivered, files
from workloads.preview.task import PREVIEW

pytestmark = pytest.mark.live

FACTS = facts(1)
CHECK = next(c for c in PREVIEW.task(1, 3).checks if c.name == "preview")
SETS = {
    " and ".join(names) or "nothing wrong": [DEFECTS[name][1] for name in names]
    for size in (0, 1, 2, 4)
    for names in itertools.combinations(DEFECTS, size)
}
WITHOUT = ""
"""A PATH on which no browser is found."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckRunner]:
    server = await start_zygote(tmp_path_factory.mktemp("z") / "s")
    yield CheckRunner(server.socket_path, tag="preview")
    await server.stop()


def shop(root: Path, defects: Sequence[Defect] = (), without: str = "") -> dict[str, str]:
    """The texts of a workspace with these defects in it, which are also put there."""
    texts = {**files(FACTS), **{path: planted(text, defects) for path, text in delivered(FACTS).items()}}
    texts |= {path: back_end(FACTS, component) for component, path in SERVICES.items()}
    texts |= {"delivery/flow.json": '{"steps": []}'}
    texts.pop(without, None)
    for path, text in texts.items():
        DiskFiles(root).put(path, text)
    return texts


async def start(runner: CheckRunner, root: Path, **env: str) -> RunningCheck:
    given = {"SCENARIO": CHECK.scenario, "PYTHONDONTWRITEBYTECODE": "1", **env}
    return await runner.start(CHECK, root, given)


async def preview(runner: CheckRunner, root: Path, **env: str) -> CheckResult:
    return await (await start(runner, root, **env)).wait()


# --- both worlds --------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("defects", SETS.values(), ids=SETS)
async def test_plain_requests_find_what_the_sim_world_says(
    runner: CheckRunner, tmp_path: Path, defects: list[Defect]
) -> None:
    texts = shop(tmp_path, defects)
    result = await preview(runner, tmp_path, PATH=WITHOUT)
    assert sorted(result.failing) == list(PREVIEW.unit_failures(CHECK, texts)), result.output_tail
    assert sorted(result.failing) == sorted(defect.test for defect in defects)
    assert (result.passed, result.doubt) == (not defects, "")


@pytest.mark.usefixtures("browser")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("defects", [[], *([one] for one in POOL), list(POOL)], ids=["sound", *DEFECTS, "all"])
async def test_a_browser_confirms_it(runner: CheckRunner, tmp_path: Path, defects: list[Defect]) -> None:
    shop(tmp_path, defects)
    result = await preview(runner, tmp_path)
    assert sorted(result.failing) == sorted(defect.test for defect in defects), result.output_tail
    assert result.doubt == ""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", [*delivered(FACTS), *SERVICES.values()])
async def test_a_file_that_is_not_there_fails_what_the_sim_world_says(
    runner: CheckRunner, tmp_path: Path, path: str
) -> None:
    texts = shop(tmp_path, without=path)
    result = await preview(runner, tmp_path, PATH=WITHOUT)
    assert sorted(result.failing) == list(PREVIEW.unit_failures(CHECK, texts)), result.output_tail


@pytest.mark.asyncio(loop_scope="module")
async def test_the_build_is_green_with_all_four_defects(runner: CheckRunner, tmp_path: Path) -> None:
    shop(tmp_path, POOL)
    for check in (c for c in PREVIEW.task(1, 3).checks if c.name == "build" or c.name.startswith("unit_")):
        result = await (await runner.start(check, tmp_path, {"PYTHONDONTWRITEBYTECODE": "1"})).wait()
        assert result.passed, result.output_tail


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_told_to_the_outside_of_what_does_not_work(runner: CheckRunner, tmp_path: Path) -> None:
    """The scenario cannot be read here, which shows whether anybody tried."""
    for defects in ([], [POOL[0]]):
        shop(tmp_path, defects)
        DiskFiles(tmp_path).put("delivery/flow.json", "not JSON")
        result = await preview(runner, tmp_path, PATH=WITHOUT)
        assert (f"{TARGET}::test_flow" in result.failing) is not bool(defects)


# --- two instruments ----------------------------------------------------------------------------------------------

CONTRADICTIONS = {
    "a style sheet for nothing that is there": ("site/shop.css", None, ".nobody { color: red }"),
    "items that are there and hidden": ("site/shop.css", "li { color: teal }", "li { display: none }"),
    "a link that only a script adds": (
        "site/index.html",
        "</ul>",
        "</ul><script>document.body.innerHTML += '<a href=/x>x</a>'</script>",
    ),
}


@pytest.mark.usefixtures("browser")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "old", "new"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
async def test_what_only_one_of_them_sees_is_a_doubt_and_no_verdict(
    runner: CheckRunner, tmp_path: Path, path: str, old: str | None, new: str
) -> None:
    text = shop(tmp_path)[path]
    DiskFiles(tmp_path).put(path, new if old is None else text.replace(old, new))
    result = await preview(runner, tmp_path)
    assert "in a browser" in result.doubt, result.output_tail
    assert not result.passed


BROKEN = {
    "it ends at once": "exit 1",
    "it hangs": "sleep 600",
    "it babbles": "printf 'garbage\\0' >&4; sleep 600",
    "it says something else": """printf '{"id": 1, "result": 5}\\0' >&4; sleep 600""",
    "it chatters": "while :; do printf '{}\\0' >&4; sleep 0.05; done",
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_browser_that_breaks_down_is_a_doubt_and_no_verdict(
    runner: CheckRunner, tmp_path: Path, script: str
) -> None:
    shop(tmp_path / "shop")
    broken = tmp_path / "bin" / chromium.NAMES[0]
    broken.parent.mkdir()
    broken.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    broken.chmod(0o755)
    result = await preview(runner, tmp_path / "shop", PATH=f"{broken.parent}:{os.defpath}", TIME_SCALE="0.05")
    assert "the browser failed" in result.doubt, result.output_tail
    assert not result.passed
