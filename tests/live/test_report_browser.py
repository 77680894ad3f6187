"""The report in a real browser: it opens from a file, asks nobody for anything, and shows what `summary.json` says."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from matplotlib import image

from tests.browser import Page, page

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from reportbench import at, complete, pair
from synthetic import PREREG, manifest, synthetic

from harness.report.arrange import registered
from harness.report.evidence import DUPLICATES
from harness.report.render import timeline_page, write_report
from harness.report.rows import Row
from harness.report.summary import build_summary

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

PAIRS, ARMS = 30, ("naive", "journaled", "mesh")
NUMBERS = """[...document.querySelectorAll("[data-key]")].map(one => [one.dataset.key, one.dataset.value])"""
WIDTHS = """[document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]"""
SHOWN = """[...document.querySelectorAll("#list tbody tr")].map(row => row.id.slice("trial-".length))"""
TOLD = """document.getElementById("told").textContent + " " + document.getElementById("sums").textContent"""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return registered(synthetic(PAIRS, ARMS), manifest(PAIRS, ARMS), PREREG)


@pytest.fixture(scope="module")
def summary(rows: list[Row]) -> dict[str, Any]:
    return complete(build_summary(rows, manifest(PAIRS, ARMS), PREREG))


@pytest.fixture(scope="module")
def report(rows: list[Row], summary: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    write_report(folder, summary, rows, manifest(PAIRS, ARMS), [pair(0), pair(3)])
    (folder / "pair.html").write_text(timeline_page([pair()], "Pair 0"), encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Page]:
    async with page() as found:
        yield found


@pytest.fixture
def tab(browser: Page) -> Page:
    """The one tab, as new."""
    browser.requests.clear()
    browser.problems.clear()
    return browser


async def test_the_numbers_on_the_screen_are_those_of_summary_json(
    tab: Page, report: str, summary: dict[str, Any]
) -> None:
    await tab.open(report)
    shown = await tab.value(NUMBERS)
    held = json.loads(json.dumps(summary))
    assert len(shown) > 500
    assert [key for key, value in shown if json.loads(value) != at(held, key)] == []
    assert await tab.value("document.getElementById('decision').textContent") == (
        f"{summary['decision']['kill_criterion']} exploratory"
    )
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith("about:")] == [report]


async def test_a_number_leads_to_exactly_the_trials_behind_it(
    tab: Page, report: str, rows: list[Row], summary: dict[str, Any]
) -> None:
    await tab.open(report)
    entry = summary["primary"][DUPLICATES]["mesh"]
    number = f"primary.{DUPLICATES}.mesh.duplicated"
    await tab.value(f"""document.querySelector('[data-key="{number}"]').closest("a").click()""")
    await tab.value("new Promise(done => setTimeout(done, 50))")
    wanted = [row.trial for row in rows if row.arm == "mesh" and row.fault_class != "none"]
    assert await tab.value(SHOWN) == wanted
    told = await tab.value(TOLD)
    assert told.startswith(f"{entry['pairs']} trials: arm mesh; with faults ")
    assert f"duplicated {entry['duplicated']} of {entry['intended']} intended effects" in told
    assert await tab.value("document.activeElement.id") == "trials"


def faulted(row: Row) -> bool:
    return row.fault_class != "none"


@pytest.mark.parametrize(
    ("hash_", "kept"),
    [
        ("trials?arm=naive&twin=1", lambda row: row.arm == "naive" and not faulted(row)),
        (
            "trials?arm=naive%2Cmesh&fault=hung_check",
            lambda row: row.arm in ("naive", "mesh") and row.fault_class == "hung_check",
        ),
        ("trials?of=transport.duplicates&arm=mesh", lambda row: row.arm == "mesh" and row.duplicated > 0),
        ("trials?exposed=0&arm=journaled", lambda row: row.arm == "journaled" and not row.exposed),
        ("trials?index=7", lambda row: row.index == 7),
        ("trial-mesh-2-none", lambda row: row.index == 2),
        ("trials?arm=nobody", lambda row: False),
    ],
)
async def test_a_hash_filters_the_list(tab: Page, report: str, rows: list[Row], hash_: str, kept: Any) -> None:
    await tab.open(f"{report}#{hash_}")
    assert await tab.value(SHOWN) == [row.trial for row in rows if kept(row)][:200]
    assert await tab.value("document.querySelectorAll('tr.marked').length") == int(hash_.startswith("trial-"))
    assert tab.problems == []


FOLLOWED = """(async () => {
    const style = document.createElement("style");
    style.textContent = "body > * { display: none }";  // nothing is laid out a few hundred times
    document.head.append(style);
    const said = new Map(), found = [];
    for (const link of document.querySelectorAll('main a[href^="#trials?"]')) {
        const number = link.querySelector("[data-key]"), href = link.getAttribute("href");
        if (!number) continue;
        if (!said.has(href)) {
            const followed = new Promise(done => addEventListener("hashchange", done, { once: true }));
            link.click();
            await followed;
            said.set(href, TOLD);
        }
        found.push([number.dataset.key, number.dataset.value, said.get(href)]);
    }
    return found;
})()""".replace("TOLD", TOLD)


async def test_every_count_sum_and_mean_is_that_of_the_trials_behind_its_link(tab: Page, report: str) -> None:
    """What the list itself makes of the trials that a link leads to, against the first number in the link."""
    await tab.open(report)
    compared = {"count": 0, "sum": 0, "mean": 0}
    for key, value, told in await tab.value(FOLLOWED):
        kind = next((kind for kind, pattern in COMPARED.items() if re.fullmatch(pattern, key)), None)
        if kind:
            heard = re.search(HEARD[kind], told)
            found = float(heard.group(1).replace(",", "")) if heard else 0.0  # no trial, nothing to add up
            assert heard or "No trial matches" in told
            assert found == pytest.approx(float(value), rel=1e-5, abs=1e-9), (key, told)
            compared[kind] += 1
    assert min(compared.values()) > 40


COMPARED = {
    "count": r"primary\.\w+\.\w+\.pairs|by_fault\.\w+\.\w+\.exposure\.(trials|exposed)",
    "sum": r"by_boundary\.\w+\.\w+\.(duplicates|duplicates_gross|lost|stale)|verdicts\..+|"
    r"by_fault\.\w+\.\w+\.exposure\.(scheduled|armed|fired|observed|expired)|.+\.tokens_destroyed",
    "mean": r"secondary\.\w+\.\w+\.estimate",
}
HEARD = {
    "count": r"^([\d,]+) trials",
    "sum": r": sum ([-\d,.e]+), mean",
    "mean": r", mean ([-\d,.e]+);",
}


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_the_window_and_is_not_blank(tab: Page, report: str, width: int, height: int, dark: bool) -> None:
    await tab.resize(width, height)
    await tab.dark(dark)
    for name in ("report.html", "report.html#pair-0", "report.html#trials?arm=mesh", "pair.html"):
        await tab.open(report.replace("report.html", name))
        page_width, body_width, window = await tab.value(WIDTHS)
        assert max(page_width, body_width) <= window, name
        pixels = image.imread(io.BytesIO(await tab.screenshot()))[..., :3]
        assert pixels.shape[:2] == (height, width)
        ground = pixels[2, 2]
        assert bool(ground.mean() < 0.3) is dark
        written = np.abs(pixels - ground).max(axis=2) > 0.3
        assert 0.005 < written.mean() < 0.6, name
    assert tab.problems == []


async def test_without_scripts_the_numbers_stand_and_the_list_says_what_it_needs(tab: Page, report: str) -> None:
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await tab.open(report)
    finally:
        await tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "The list needs JavaScript" in await tab.value("document.querySelector('noscript').textContent")
    assert len(await tab.value(NUMBERS)) > 500


async def test_tables_wider_than_the_window_are_reached_by_keyboard(tab: Page, report: str) -> None:
    await tab.resize(390, 844)
    await tab.open(report)
    unreachable = await tab.value(
        """[...document.querySelectorAll(".wide, .drawn")]
            .filter(one => one.scrollWidth > one.clientWidth && one.tabIndex < 0).length"""
    )
    assert unreachable == 0
