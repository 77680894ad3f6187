"""The tables of the report: every number is the summary's, what is missing says why, and every form says the same."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from reportbench import REASON, at, calibration, complete
from synthetic import PREREG, invalid, manifest, row, synthetic

from harness.report.cells import ABSENT, UNKNOWN, Cell, Num, Spot, Table, letter, narrowed, words
from harness.report.evidence import DUPLICATES
from harness.report.export import comma_separated, latex, markdown, write_tables
from harness.report.page import head
from harness.report.summary import build_summary
from harness.report.tables import tables

PAIRS = 24


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return complete(build_summary(synthetic(PAIRS), manifest(PAIRS), PREREG))


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return build_summary(synthetic(PAIRS), manifest(PAIRS), PREREG)


def named(summary: dict[str, Any], name: str) -> Table:
    return next(table for table in tables(summary) if table.name == name)


def row_of(table: Table, *labels: str) -> dict[str, Cell]:
    """The row that begins with these words, by column."""
    found = next(r for r in table.rows if tuple(cell.text for cell in r[: len(labels)]) == labels)
    return dict(zip(table.header, found, strict=True))


# --- numbers ------------------------------------------------------------------------------------------------------


def test_every_number_of_every_table_and_of_the_head_is_the_summarys(summary: dict[str, Any]) -> None:
    shown = [number for t in tables(summary) for r in t.rows for cell in r for number in cell.numbers]
    shown += [number for _, cell in head(summary).facts for number in cell.numbers]
    assert len(shown) > 1000
    assert [n for n in shown if at(summary, n.key) != n.value] == []


def test_every_row_has_a_cell_for_each_column(summary: dict[str, Any]) -> None:
    assert [t.name for t in tables(summary) for r in t.rows if len(r) != len(t.header)] == []


def test_every_primary_shows_all_arms_and_intervals(summary: dict[str, Any]) -> None:
    entry = summary["primary"][DUPLICATES]["naive"]
    table = named(summary, "primary_duplicates")
    assert [r[0].text for r in table.rows] == summary["arms"]
    shown = row_of(table, "naive")
    assert [n.value for n in shown["estimate [mixture]"].numbers] == [
        entry["estimate"],
        entry["ci_low"],
        entry["ci_high"],
    ]
    assert shown["[STaR]"].text == "[-50.0 %, 25.0 %]"
    assert shown["duplicated / intended"].text == f"{entry['duplicated']} / {entry['intended']}"


def test_differences_show_ratio_bound_and_pairs(summary: dict[str, Any]) -> None:
    shown = row_of(named(summary, f"differences_{DUPLICATES}"), "naive – mesh")
    assert shown["ratio [upper bound]"].text == "0.188 [≤ 0.75]"
    assert shown["better / worse / tied"].text == "9 / 2 / 13"


def test_a_ratio_without_a_bound_keeps_its_estimate_and_says_why(summary: dict[str, Any]) -> None:
    summary = complete(summary)
    summary["primary"][DUPLICATES]["differences"][0]["ratio"]["upper"] = {"not_applicable": REASON}
    cell = row_of(named(summary, f"differences_{DUPLICATES}"), "naive – naive_contained")["ratio [upper bound]"]
    assert (cell.text, cell.because) == ("0.188", REASON)


def test_a_name_with_a_dot_is_found_again() -> None:
    spot = Spot({"a.b": {"c": [1.5]}})["a.b"]["c"][0]
    assert spot.key == "a\\.b.c.0"
    assert at({"a.b": {"c": [1.5]}}, spot.key) == spot.value == 1.5


# --- what is missing ----------------------------------------------------------------------------------------------


OPTIONAL_KEYS = {"status", "stopping", "calibration", "dependence", "specs", "blame", "levels", "power"}


def test_an_older_summary_says_what_it_lacks(plain: dict[str, Any]) -> None:
    plain = {key: value for key, value in plain.items() if key not in OPTIONAL_KEYS}
    plain["primary"] = json.loads(json.dumps(plain["primary"]))
    for entry in plain["primary"]["work_destroyed_per_fault"].values():
        for name in ("star", "hull") if isinstance(entry, dict) else ():
            entry.pop(name, None)
    for name in ("calibration", "noise_floor", "levels", "blame", "dependence", "specifications", "power"):
        assert named(plain, name).absent == UNKNOWN
    assert "[hull]" not in named(plain, "primary_work").header
    assert f"Not given: [STaR], [hull]: {UNKNOWN}." in named(plain, "primary_work").about
    assert head(plain).label == "not labelled"


def test_a_value_that_cannot_be_given_is_a_dash_with_its_reason(summary: dict[str, Any]) -> None:
    table = named(summary, "power")
    assert table.rows[1][1].text == ABSENT
    assert table.notes == {REASON: "a"}
    assert named({**summary, "dependence": {"not_applicable": REASON}}, "dependence").absent == REASON


def test_a_column_goes_only_when_it_is_empty_throughout() -> None:
    none, some = Cell((), "", REASON), Cell((Num("k", 1, "1"),))
    table = Table(name="t", title="T", about="A.", header=("arm", "x"), rows=((words("a"), none), (words("b"), some)))
    assert narrowed(table, ("x",)) == table
    found = narrowed(Table(name="t", title="T", about="A.", header=("arm", "x"), rows=((words("a"), none),)), ("x",))
    assert (found.header, found.about) == (("arm",), f"A. Not given: x: {REASON}.")


def test_letters_go_on_after_z() -> None:
    assert [letter(n) for n in (0, 25, 26, 51, 52, 701, 702)] == ["a", "z", "aa", "az", "ba", "zz", "aaa"]


# --- calibration and claims ---------------------------------------------------------------------------------------


def won(floor: float) -> dict[str, Any]:
    """A run in which superiority on duplicates is shown, with this noise floor."""
    rows = [row("naive", i, duplicated=3) for i in range(400)] + [row("mesh", i) for i in range(400)]
    found = build_summary(rows, manifest(400, ("naive", "mesh")), PREREG)
    assert found["decision"]["superiority"]["shown"]
    assert found["decision"]["superiority"]["on"] == [DUPLICATES]
    return {**found, "calibration": calibration(floor)}


def test_a_difference_above_the_noise_floor_is_a_claim() -> None:
    found = won(0.27)  # the difference is 3 of 11
    assert head(found).claims[0] == ("superiority", f"shown on {DUPLICATES}")
    assert row_of(named(found, "claims"), "superiority", DUPLICATES)["result"].text == "shown"
    assert named(found, f"differences_{DUPLICATES}").rows[0][1].text == "less harm than the control"


def test_a_difference_within_the_noise_floor_is_printed_as_no_claim() -> None:
    found = won(0.28)
    assert head(found).claims[0][1].startswith("not claimed")
    assert row_of(named(found, "claims"), "superiority", DUPLICATES)["result"].text.startswith("no claim")
    assert named(found, f"differences_{DUPLICATES}").rows[0][1].text == "within the noise floor: no claim"


def test_a_failed_check_is_seen_in_the_table_and_in_the_head(summary: dict[str, Any]) -> None:
    found = {**summary, "calibration": calibration(passed=False)}
    assert named(found, "calibration").rows[0][4].text == "FAILED"
    assert ("calibration", "FAILED: idempotent") in [(what, cell.text) for what, cell in head(found).facts]


def test_the_head_says_whether_the_run_confirms(summary: dict[str, Any]) -> None:
    assert (head(summary).label, head(summary).label_because) == ("exploratory", tuple(summary["status"]["because"]))
    assert head({**summary, "status": {"confirmatory": True, "because": []}}).label == "confirmatory"


# --- other tables -------------------------------------------------------------------------------------------------


def test_exposure_shows_every_state_that_faults_went_through() -> None:
    states = {"scheduled": 2, "armed": 2, "fired": 1, "observed": 1, "expired": 1}
    rows = [row("naive", 0, exposure=states), row("naive", 1, exposed=False, exposure={"scheduled": 2})]
    shown = row_of(named(build_summary(rows, manifest(2, ("naive",)), PREREG), "exposure"), "nondeterminism", "naive")
    assert [shown[name].text for name in (*states, "trials exposed")] == ["4", "2", "1", "1", "1", "1"]


def test_chains_show_every_bound_and_the_rate_of_each_link(summary: dict[str, Any]) -> None:
    shown = row_of(named(summary, "dependence"), "mesh")
    assert [cell.text for cell in shown.values()][1:7] == [
        *("24", "25.0 %", "75.0 %", "87.5 % [70.0 %, 96.0 %]", "93.8 %", "orders 93.8 %; inventory 100.0 %"),
    ]
    assert named(summary, "dependence").rows[-1][1].because == REASON


def test_levels_and_blame_are_laid_out(summary: dict[str, Any]) -> None:
    shown = row_of(named(summary, "levels"), "L3", "mesh")
    assert shown["duplicates"].text == "1.52 % (4 / 264)"
    assert shown["misses"].text == "0 / 264 [≤ 12.5 % of trials]"
    shown = row_of(named(summary, "blame"), "loops", "mesh")
    assert [shown[name].text for name in ("healthy killed", "precision", "recall")] == ["1", "92.3 %", ABSENT]
    assert row_of(named(summary, "blame"), "effects", "mesh")["trials"].because == ""


def test_a_broken_specification_is_counted_by_arm(summary: dict[str, Any]) -> None:
    shown = row_of(named(summary, "specifications"), "verdict_for_every_refusal")
    assert (shown["naive"].text, shown["mesh"].text) == ("2", "0")
    none = named({**summary, "specs": {"checked": 14, "violated": {}}}, "specifications")
    assert none.empty == "Every specification held in every trial."


def test_what_went_wrong_is_listed() -> None:
    rows = [row("naive", 0), invalid("naive", 1)]
    shown = named(build_summary(rows, manifest(2, ("naive",)), PREREG), "trouble").texts()
    assert shown == (("1", "naive", "invalid", "naive-1-nondeterminism", "lag"),)


# --- files --------------------------------------------------------------------------------------------------------


def test_csv_gives_every_number_of_a_table_in_full_precision(summary: dict[str, Any]) -> None:
    for table in tables(summary):
        read = list(csv.reader(io.StringIO(comma_separated(table))))
        assert len({len(line) for line in read}) == 1, table.name
        assert len(set(read[0])) == len(read[0]), table.name
        for line, cells in zip(read[1:], table.rows, strict=True):
            left = iter(line)
            assert all(number.exact in left for cell in cells for number in cell.numbers), (table.name, line)


def test_csv_names_the_parts_of_a_column_and_says_why_one_is_missing(summary: dict[str, Any]) -> None:
    read = list(csv.DictReader(io.StringIO(comma_separated(named(summary, "primary_duplicates")))))
    entry = summary["primary"][DUPLICATES]["naive"]
    assert float(read[0]["estimate [mixture] high"]) == entry["ci_high"]
    assert int(read[0]["intended"]) == entry["intended"]
    read = list(csv.DictReader(io.StringIO(comma_separated(named(summary, "power")))))
    assert read[1]["pairs needed"] == f"not applicable: {REASON}"


AWKWARD = r"\input{x} & 100 % of $5 #1 a_b {c} ~ ^ <script> | – ± ≤"


def awkward() -> Table:
    return Table(
        name="awkward",
        title=AWKWARD,
        about=AWKWARD,
        header=("arm", AWKWARD),
        rows=((words(AWKWARD), Cell((), "", AWKWARD)), (words("[a]"), Cell((Num("k", 1.5, "1.5"),)))),
    )


@pytest.mark.parametrize("name", ["awkward", "by_fault", "metrics", f"differences_{DUPLICATES}", "calibration"])
def test_latex_has_no_open_brace_and_no_bare_special_character(name: str, summary: dict[str, Any]) -> None:
    table = awkward() if name == "awkward" else named(summary, name)
    text = latex(table)
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    body = text[text.index("\\midrule") + 8 : text.index("\\bottomrule")].strip().splitlines()
    for line in body:
        assert line.endswith(r" \\")
        assert not line.startswith("[")  # after a line break it would be read as the size of the break
        plain = re.sub(r"\\[&%#_{}]|\\\\$|\$\\pm\$|\$\\le\$|\$[<>]\$|\\\$", "", line)
        assert plain.count("&") == len(table.header) - 1
        assert not set(plain) & set("%$#_~^|") - {"|"}
    commands = set(re.findall(r"\\([a-zA-Z]+)", text))
    assert commands <= {
        *("begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "pm", "le"),
        *("textbackslash", "textasciitilde", "textasciicircum", "textsuperscript"),
    }


def test_markdown_cannot_be_broken_by_what_a_cell_says() -> None:
    lines = markdown(awkward()).splitlines()
    shown = [line for line in lines if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in shown)
    assert "<script>" not in "\n".join(shown)


def test_a_table_that_is_shown_apart_from_its_report_says_what_its_run_is_worth(tmp_path: Any) -> None:
    one = Table(name="one", title="Harm", about="Of arms.", header=("a",), rows=((words("b"),),))
    write_tables(tmp_path, [one], "Exploratory run.")
    assert (tmp_path / "one.md").read_text().startswith("## Harm\n\nExploratory run. Of arms.\n")
    assert r"\caption{Harm. Exploratory run. Of arms.}" in (tmp_path / "one.tex").read_text()
    write_tables(tmp_path, [one])
    assert "xploratory" not in (tmp_path / "one.md").read_text() + (tmp_path / "one.tex").read_text()


def test_files_of_tables_that_are_no_more_are_removed(tmp_path: Any) -> None:
    write_tables(tmp_path, [awkward()])
    write_tables(tmp_path, [Table(name="new", title="N", header=("a",), rows=((words("b"),),))])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "new.md", "new.tex"]
