"""Pairs side by side: which are chosen, what of a trial is drawn, and the command that draws any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import typer
from msgspec.structs import replace
from reportbench import pair
from synthetic import row
from typer.testing import CliRunner

from harness import timeline
from harness.commands import timeline as command
from harness.core.errors import ConfigError
from harness.core.records import Event, SealedTrial, TrialRecord, Work
from harness.core.types import Verdict
from harness.report.rows import BoundaryCounts
from harness.report.timeline import CODES, SHOWN_MAX, Chosen, Course, Mark, choose, drawings, legend
from harness.trace_store import TraceStore

ARMS = ("naive", "mesh")

# --- which pairs --------------------------------------------------------------------------------------------------


def test_the_first_pair_of_each_class_the_furthest_apart_and_every_loss_are_shown() -> None:
    rows = [row(arm, i, "hung_check") for arm in ARMS for i in range(30)]
    rows[3] = row("naive", 3, "staging_crash")
    rows[33] = row("mesh", 3, "staging_crash")
    rows[10] = row("naive", 10, "hung_check", duplicated=4)
    rows[41] = row("mesh", 11, "hung_check", destroyed=900)
    lost = {"transport": BoundaryCounts(intended=4, observed=2, lost=2)}
    rows[42] = row("mesh", 12, "hung_check", boundaries=lost)
    rows += [row(arm, 20, "none", duplicated=3) for arm in ARMS]
    assert choose(rows, ARMS) == [
        Chosen(0, "first pair of hung_check"),
        Chosen(3, "first pair of staging_crash"),
        Chosen(10, "4 duplicated effects apart"),
        Chosen(11, "900 tokens destroyed apart"),
        Chosen(12, "effects were lost: mesh lost 2"),
    ]


def test_no_more_are_shown_than_fit_and_those_with_losses_give_way_first() -> None:
    lost = {"transport": BoundaryCounts(intended=4, observed=3, lost=1)}
    rows = [row(arm, i, boundaries=lost) for arm in ARMS for i in range(60)]
    rows[59] = replace(rows[59], work=Work(charged=5))
    found = choose(rows, ARMS)
    assert len(found) == SHOWN_MAX
    assert found[-1].index == 59


def test_only_pairs_that_all_compared_arms_have_are_shown() -> None:
    rows = [row("naive", i, duplicated=i) for i in range(3)] + [row("mesh", 0)]
    assert [one.index for one in choose(rows, ARMS)] == [0]
    assert [one.index for one in choose(rows, ("naive",))] == [0]
    assert choose([], ARMS) == []


# --- what is drawn ------------------------------------------------------------------------------------------------


def site(delegation: str, seam: str, name: str) -> dict[str, str]:
    return {"delegation": delegation, "phase": "implementation", "seam": seam, "name": name}


def sealed(arm: str = "naive", index: int = 0) -> SealedTrial:
    """A trial whose orchestrator dies in its first attempt; the second has a timeout, an error and two effects."""
    a1 = {"delegation": "orders", "attempt": 1, "resumed": False}
    a2 = {"delegation": "orders", "attempt": 2, "resumed": True}
    trace = [
        Event(0, 10, 0, "epoch", {"epoch": 0}),
        Event(1, 20, 0, "attempt", a1),
        Event(2, 30, 0, "call", {"call": "model", "call_id": "c1", "site": site("orders", "S1", "chat")}),
        Event(3, 200, 1, "epoch", {"epoch": 1}),
        Event(4, 210, 1, "attempt", a2),
        Event(5, 220, 1, "call", {"call": "tool", "call_id": "c2", "site": site("orders", "S2", "run_check")}),
        Event(6, 250, 1, "outcome", {"call_id": "c2", "result": "err", "verdict": "timed-out", "code": "timeout"}),
        Event(7, 260, 1, "call", {"call": "commit", "call_id": "c3", "site": site("orders", "S3", "stage")}),
        Event(8, 270, 1, "outcome", {"call_id": "c3", "result": "err", "verdict": "executed", "code": "conflict"}),
        Event(9, 280, 1, "attempt_end", {**a2, "status": "failed", "code": "gave_up"}),
    ]
    truth = [
        Event(0, 0, 0, "fault", {"fault": 0, "class": "hung_check", "variant": "hung", "state": "armed"}),
        Event(1, 90, 0, "fault", {"fault": 0, "state": "fired"}),
        Event(2, 100, 0, "exit", {"epoch": 0, "signal": "SIGKILL"}),
        Event(3, 240, 1, "suffered", {"check": "unit_orders", "what": "stopped"}),
        Event(4, 245, 1, "effect", {"boundary": "transport", "operation": "XADD", "event": {"type": "order.created"}}),
        Event(5, 246, 1, "effect", {"boundary": "hook", "hook": "publish", "receipt": "r"}),
        Event(6, 300, 1, "fault", {"fault": 0, "state": "observed"}),
    ]
    record = TrialRecord(
        id=f"{arm}{index}",
        pair=f"p{index}",
        index=index,
        workload="codegen",
        arm=arm,
        world="sim",
        seed=1,
        variation=3,
        fault_class="hung_check",
        variant="hung",
        faults_scheduled=1,
        status="ended",
        duration_ms=290.0,
    )
    return SealedTrial(record=record, trace=tuple(trace), truth=tuple(truth))


def test_a_course_holds_processes_attempts_calls_and_what_happened() -> None:
    found = timeline.course(sealed(), [{"status": "duplicate", "boundary": "transport", "key": "k", "required": 1}])
    assert [(s.lane, s.from_ms, s.to_ms, s.end) for s in found.spans] == [
        ("process", 10, 100, "cut"),
        ("process", 200, 300, "alive"),
        ("orders", 210, 280, "failed"),
        ("orders", 20, 100, "cut"),
    ]
    assert found.spans[2].said == "orders, attempt 2, resumed: failed (gave_up)"
    assert found.calls == {"orders": ((30, "S1"), (220, "S2"), (260, "S3"))}
    assert [(m.at_ms, m.lane, m.kind, m.said) for m in found.marks] == [
        (90, "faults", "fired", "fault #0 hung_check/hung fired"),
        (100, "process", "exit", "orchestrator process 0 ended: SIGKILL"),
        (240, "faults", "suffered", "injury: unit_orders, stopped"),
        (245, "transport", "effect", "XADD order.created"),
        (246, "hook", "effect", "publish"),
        (250, "orders", "verdict", "timed-out: implementation S2 run_check"),
        (270, "orders", "error", "conflict: implementation S3 stage"),
        (300, "faults", "observed", "fault #0 hung_check/hung observed"),
    ]
    assert [m.number for m in found.marks if m.lane == "faults"] == [0, None, 0]
    drawn = drawings(replace(pair(), courses=(found,)))[0]
    assert [e.text for e in ElementTree.fromstring(drawn).iter("text") if e.get("class") == "number"] == ["#0", "#0"]
    assert found.findings == ("duplicate: transport k (required 1, observed None)",)
    assert found.judged
    assert not timeline.course(sealed()).judged


def test_numbers_of_faults_at_one_place_stand_in_one_text_within_the_drawing() -> None:
    marks = [Mark(at, "faults", "fired", "", n) for at, n in ((10, 1), (10, 0), (10, 1), (200, 2), (999, 3))]
    course = Course(trial="t", arm="mesh", status="ended", duration_ms=1000, marks=tuple(marks))
    drawn = drawings(replace(pair(), courses=(course,)))[0]
    texts = [e for e in ElementTree.fromstring(drawn).iter("text") if e.get("class") == "number"]
    assert [e.text for e in texts] == ["#0 #1", "#2", "#3"]
    assert [e.get("text-anchor") for e in texts] == ["start", "end", "end"]


def test_every_verdict_but_executed_has_a_letter_of_its_own() -> None:
    assert set(CODES) == {verdict.value for verdict in Verdict} - {"executed"}
    assert len(set(CODES.values())) == len(CODES)


def test_both_drawings_of_a_pair_are_sound_and_share_lanes_and_axis() -> None:
    one, other = (ElementTree.fromstring(text) for text in drawings(pair()))
    lanes = [[e.text for e in svg.iter("text") if e.get("class") == "lane"] for svg in (one, other)]
    boundaries = ["transport", "database", "registry", "provider", "repository", "hook"]
    assert lanes[0] == lanes[1] == ["faults", "process", "orders", *boundaries]
    ticks = [[(e.get("x"), e.text) for e in svg.iter("text") if e.get("class") == "tick"] for svg in (one, other)]
    assert ticks[0] == ticks[1]
    signs = {e.get("class") for e in one.iter()}
    assert signs >= {"fired", "observed", "expired", "suffered", "effect", "verdict", "error", "exit", "S1", "S2", "S3"}
    assert one.findtext("title") == (
        "naive: ended after 10.0 s; 3 calls, 1 faults fired, 1 injuries, 1 deaths of the orchestrator, 1 verdicts "
        "other than executed, 1 errors, 1 effects, 1 faults observed, 1 faults expired"
    )


def test_everything_drawn_lies_within_the_drawing() -> None:
    for text in drawings(pair()):
        svg = ElementTree.fromstring(text)
        _, _, width, height = map(float, svg.get("viewBox", "").split())
        for rect in svg.iter("rect"):
            x, y, w, h = (float(rect.get(key, "nan")) for key in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height


def test_the_legend_explains_every_sign() -> None:
    signs = "".join(svg for svg, _ in legend())
    assert all(f'class="{kind}"' in signs for kind in ("fired", "observed", "expired", "effect", "exit", "error", "S3"))
    assert {told for _, told in legend()} >= set(CODES)


# --- from a run folder --------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    document = {"arms": {"control": "naive", "treatment": "mesh"}}
    told: dict[str, Any] = {"arms": ["mesh", "naive", "other"], "preregistration": {"document": document}}
    with TraceStore.create(folder, told) as store:
        for arm in ("mesh", "naive", "other"):
            trial = sealed(arm)
            store.seal(trial.record, trial.trace, trial.truth)
    one = {"trial": "mesh0", "status": "lost_in_flight", "boundary": "hook", "key": "k", "required": 1, "observed": 0}
    (folder / "findings.jsonl").write_bytes(msgspec.json.encode(one) + b"\n")
    return folder


def test_a_pair_is_read_from_a_run_with_what_the_oracle_said(run: Path) -> None:
    (found,) = timeline.pairs(run, [Chosen(0, "asked for")], timeline.default_arms(run))
    assert [course.arm for course in found.courses] == ["naive", "mesh"]
    assert found.courses[1].findings == ("lost in flight: hook k (required 1, observed 0)",)
    assert not found.courses[0].judged


@pytest.mark.parametrize(("index", "arms", "said"), [(7, ARMS, "pairs 0 to 0"), (0, ("nobody",), "arms mesh, naive")])
def test_a_pair_or_an_arm_that_is_not_there_is_refused(run: Path, index: int, arms: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        timeline.pairs(run, [Chosen(index, "")], arms)


def test_the_command_writes_a_page_of_its_own(run: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.add(app)
    out = tmp_path / "pair.html"
    done = CliRunner().invoke(app, ["timeline", str(run), "0", "-o", str(out), "--arms", "mesh,other"])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(out)
    page = out.read_text(encoding="utf-8")
    assert page.count('<svg class="course"') == 2
    assert ">mesh: ended" in page
    assert ">other: ended" in page
    assert 'href="#' not in page  # there is no list of trials to lead to
