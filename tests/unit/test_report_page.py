"""`report.html`: self-contained, in the order that a sceptic asks in, and showing what `summary.json` says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace
from reportbench import at, complete, pair
from synthetic import PREREG, invalid, manifest, row, synthetic

from harness.core.records import NotApplicable
from harness.metrics import METRICS
from harness.report import page
from harness.report.arrange import HEADLINE, registered
from harness.report.render import compared, timeline_page, write_report, write_summary
from harness.report.rows import Row
from harness.report.summary import build_summary

PAIRS = 24
MANIFEST = {
    **manifest(PAIRS),
    "seed": 7,
    "starts": [
        {
            "git": {"commit": "c0ffee", "dirty": True},
            "machine": {"cores": 2, "python": "3.11.7"},
            "jobs": 4,
            "packages": {"numpy": "2.0"},
        }
    ],
    "reruns": [{"trial": "naive-3-none", "because": "a late timer"}],
    "files": {"trials.jsonl": "ab" * 32},
}


class Read(HTMLParser):
    """What a test wants to know of a page."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append((tag, told))
        if "data-key" in told:
            self.numbers.append((str(told["data-key"]), str(told["data-value"])))
        self.links += [str(told[key]) for key in ("href", "src", "xlink:href", "action") if key in told]
        self.ids += [str(told["id"])] if "id" in told else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return registered(synthetic(PAIRS), manifest(PAIRS), PREREG)


@pytest.fixture(scope="module")
def summary(rows: list[Row]) -> dict[str, Any]:
    return complete(build_summary(rows, manifest(PAIRS), PREREG))


@pytest.fixture(scope="module")
def text(rows: list[Row], summary: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    write_report(folder, summary, rows, MANIFEST, [pair(0), pair(3)])
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text: str) -> Read:
    return Read(text)


# --- the page -----------------------------------------------------------------------------------------------------


def test_every_number_of_the_page_is_that_of_summary_json(summary: dict[str, Any], read: Read) -> None:
    held = json.loads(json.dumps(summary))
    assert len(read.numbers) > 1000
    assert [key for key, value in read.numbers if json.dumps(at(held, key)) != value] == []
    shown = {key for key, _ in read.numbers}
    for primary, entry in held["primary"].items():
        for arm in HEADLINE:
            wanted = {f"primary.{primary}.{arm}.{name}" for name in ("estimate", "ci_low", "ci_high")}
            assert wanted <= shown
            assert "estimate" in entry[arm]


def test_the_page_is_well_formed_and_every_id_stands_once(read: Read) -> None:
    assert read.open == []
    assert sorted(set(read.ids)) == sorted(read.ids)


def test_nothing_is_loaded_from_elsewhere(text: str, read: Read) -> None:
    assert [link for link in read.links if not link.startswith(("#", "data:,"))] == []
    addresses = set(re.findall(r"[a-z]+://[^\s\"'<>)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_every_link_within_the_page_leads_somewhere(read: Read, rows: list[Row]) -> None:
    trials = {row.trial for row in rows} | {course.trial for n in (0, 3) for course in pair(n).courses}
    for link in read.links:
        if link.startswith("#trial-"):
            assert link.removeprefix("#trial-") in trials
        elif link.startswith("#trials?"):
            assert set(parse_qs(link.removeprefix("#trials?"))) <= KNOWN
        elif link.startswith("#"):
            assert link.removeprefix("#") in read.ids


KNOWN = {"arm", "twin", "fault", "level", "index", "trial", "status", "both", "paired", "exposed", "of", "all"}


def test_the_sections_stand_in_the_order_of_a_sceptics_questions(text: str) -> None:
    wanted = (
        *('id="decision"', 'id="calibration"', 'id="primaries"', 'id="where"', 'id="blame"', 'id="ablation"'),
        *('id="dependence"', 'id="exposure"', 'id="specifications"', 'id="trouble"', 'id="secondary"', 'id="pairs"'),
        *('id="provenance"', 'id="trials"'),
    )
    places = [text.index(id_) for id_ in wanted]
    assert places == sorted(places)


def test_no_table_is_left_out(read: Read, summary: dict[str, Any]) -> None:
    from harness.report.tables import tables

    assert {f"table-{table.name}" for table in tables(summary)} <= set(read.ids)


def test_a_table_can_be_read_without_being_seen(read: Read) -> None:
    heads = [told for tag, told in read.tags if tag == "th"]
    assert heads
    assert all(told.get("scope") in ("col", "row") for told in heads)
    assert sum(tag == "caption" for tag, _ in read.tags) == sum(tag == "table" for tag, _ in read.tags)
    drawings = [told for tag, told in read.tags if tag == "svg" and not told.get("aria-hidden")]
    assert all(told.get("role") == "img" for told in drawings)
    assert all(told["aria-labelledby"] in read.ids for told in drawings if "aria-labelledby" in told)
    assert [told for tag, told in read.tags if tag == "html"] == [{"lang": "en"}]


def test_what_went_wrong_and_where_it_comes_from_is_told(text: str) -> None:
    for said in ("a late timer", "c0ffee, with changes that are not committed", "cores 2, python 3.11.7", "ab" * 32):
        assert said in text
    assert "exploratory" in text


def test_what_a_trial_says_cannot_break_the_page(tmp_path: Path) -> None:
    spoilt = row("naive", 0, status="stuck", because="<script>alert(1)</script>", variant="</script><b>&amp;")
    write_report(tmp_path, build_summary([spoilt], manifest(1, ("naive",)), PREREG), [spoilt])
    text = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    assert Read(text).open == []


# --- the trials behind the numbers --------------------------------------------------------------------------------


def listed(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="trials-data">(.*?)</script>', text, re.DOTALL)
    assert found
    return dict(json.loads(found.group(1)))


def test_all_trials_are_in_the_page_with_their_harm(text: str, rows: list[Row]) -> None:
    data = listed(text)
    assert [one[0] for one in data["rows"]] == [row.trial for row in rows]
    for one, wanted in zip(data["rows"], rows, strict=True):
        assert data["arms"][one[2]] == wanted.arm
        assert (data["workloads"][one[3]], data["faults"][one[4]]) == (wanted.workload, wanted.fault_class)
        assert one[9:13] == [wanted.intended, wanted.duplicated, wanted.lost, wanted.work.destroyed]
    assert data["shown"] == [0, 3]


def measured(data: dict[str, Any], nth: int) -> dict[str, float]:
    flat = data["rows"][nth][14]
    return {data["measures"][flat[at]]: flat[at + 1] for at in range(0, len(flat), 2)}


def test_a_measure_of_a_trial_is_its_value_a_gap_or_zero(rows: list[Row]) -> None:
    name = next(iter(METRICS))
    one = replace(row("naive", 0), metrics={name: 0.1234567890123}, verdicts={"timed-out": 2})
    two = replace(row("naive", 1), metrics={name: NotApplicable("none")}, violations={"a_rule": 3})
    three = row("naive", 2, metrics={name: 0.0})
    data = json.loads(page.trials([one, two, three], [], "naive", [name]))
    assert measured(data, 0)[f"metric.{name}"] == 0.123457
    assert measured(data, 0)["verdict.timed-out"] == 2
    assert measured(data, 1)["spec.a_rule"] == 3
    gaps = [[data["measures"][n] for n in data["gaps"][data["rows"][nth][13]]] for nth in range(3)]
    assert gaps == [[], [f"metric.{name}"], []]
    assert f"metric.{name}" not in measured(data, 2)


def test_both_exposed_is_told_by_trial() -> None:
    rows = [row("naive", 0), row("mesh", 0), row("naive", 1, exposed=False), row("mesh", 1), invalid("mesh", 2)]
    data = json.loads(page.trials(rows, [], "naive", []))
    assert [bool(one[8] & 8) for one in data["rows"]] == [True, True, False, False, False]


def test_a_huge_run_is_cut_and_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "TRIALS_MAX", 2)
    data = json.loads(page.trials([row("naive", i) for i in range(5)], [], "naive", []))
    assert (data["total"], len(data["rows"])) == (5, 2)


# --- the same bytes -----------------------------------------------------------------------------------------------

WRITE = """
import json, sys
from pathlib import Path
from reportbench import complete, pair
from synthetic import PREREG, manifest, synthetic
from harness.report.render import write_report, write_summary
from harness.report.arrange import registered
from harness.report.summary import build_summary
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
rows = registered(synthetic(8), manifest(8), PREREG)
summary = complete(build_summary(rows, manifest(8), PREREG))
write_summary(folder, summary)
write_report(folder, summary, rows, manifest(8), [pair()])
"""


def test_same_bytes_at_another_path_with_another_hash_seed(tmp_path: Path) -> None:
    digests = []
    for folder, seed in ((tmp_path / "a", "0"), (tmp_path / "elsewhere" / "b", "77")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
        subprocess.run([sys.executable, "-c", WRITE, str(folder)], env=environment, check=True, cwd=Path.cwd())
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        digests.append({str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
    assert digests[0] == digests[1]
    assert {"report.html", "report.md", "plots/cost_over_time.png", "tables/by_fault.tex"} <= set(digests[0])


def test_the_arms_that_are_set_side_by_side_are_those_of_the_registration(summary: dict[str, Any]) -> None:
    assert compared(summary) == ["naive", "mesh"]
    alone = build_summary([row("naive", 0)], manifest(1, ("naive",)), PREREG)
    assert compared(alone) == ["naive"]


def test_a_page_of_one_pair_is_self_contained_too() -> None:
    found = Read(timeline_page([pair()], "Pair 0 <of> a run"))
    assert found.open == []
    assert found.links == ["data:,"]


def test_summary_json_ends_with_a_line_break(tmp_path: Path, summary: dict[str, Any]) -> None:
    write_summary(tmp_path, summary)
    text = (tmp_path / "summary.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == json.loads(json.dumps(summary))
