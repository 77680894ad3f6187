"""The effect trace store: tables that add up to the summary, SQL that cannot do harm, and a cache that stays true."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
import typer
from handmade import Build, Toy, want
from sealedrun import QUIET, ROOT, read_summary, sealed_run
from typer.testing import CliRunner

from harness.commands import query as command
from harness.core.errors import ConfigError
from harness.core.records import Finding
from harness.query import ask, build, extract
from harness.query.cookbook import BY_NAME as RECIPES
from harness.query.cookbook import COOKBOOK
from harness.query.schema import BY_NAME, TABLES, described
from harness.report.rows import Row
from harness.score import score
from harness.trace_store import TraceStore

PRIMARY = ("transport", "database", "registry", "provider")


def rows_of(*runs: Path, sql: str) -> list[dict[str, Any]]:
    held = ask.sources(runs, [build.stored(run, None, QUIET) for run in runs])
    answer = ask.ask(held, sql)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def recipe(name: str) -> list[dict[str, Any]]:
    return rows_of(sealed_run(), sql=RECIPES[name].sql)


def one(sql: str) -> Any:
    (row,) = rows_of(sealed_run(), sql=sql)
    (value,) = row.values()
    return value


def summary() -> dict[str, Any]:
    return read_summary(sealed_run())


def copied(folder: Path) -> Path:
    target = folder / "copy"
    shutil.copytree(sealed_run(), target, ignore=shutil.ignore_patterns("cache"))
    return target


# --- the tables ---------------------------------------------------------------------------------------------------


def test_every_row_has_only_columns_of_the_schema() -> None:
    with TraceStore.open(sealed_run()) as store:
        for trial in store.iter():
            for table, rows in extract.of_trial(trial).items():
                extra = {"told"} if table == "effects" else set()
                assert {key for row in rows for key in row} <= {*BY_NAME[table].names, *extra}, table
    line = msgspec.json.decode((sealed_run() / "rows.jsonl").read_bytes().splitlines()[0], type=Row)
    for table, rows in extract.of_row(line).items():
        assert {key for row in rows for key in row} <= set(build.LOADED.get(table, build.LOADED.get(f"_{table}", {})))


def test_every_column_has_a_meaning_and_some_value_somewhere() -> None:
    assert all(column.about for table in TABLES for column in table.columns)
    rare = {"because", "code", "woken", "real_s", "lag_ms", "arm_us", "how", "ms", "exit_code", "signal", "crossed_ms"}
    rare |= {"fault", "evidence", "evidence_ms", "check_name", "origin", "cause", "delivered", "not_applicable"}
    for table in TABLES:
        if not one(f"SELECT count(*) FROM {table.name}"):
            continue
        counts = rows_of(
            sealed_run(), sql=f"SELECT {', '.join(f'count({n}) AS {n}' for n in table.names)} FROM {table.name}"
        )
        empty = {name for name, count in counts[0].items() if not count} - rare
        assert empty <= {"verdict"}, f"{table.name}: {empty}"


def test_trials_are_the_records_and_the_rows() -> None:
    with TraceStore.open(sealed_run()) as store:
        records = {record.id: record for record in store.records()}
    judged = [msgspec.json.decode(line, type=Row) for line in (sealed_run() / "rows.jsonl").read_bytes().splitlines()]
    found = {row["trial"]: row for row in rows_of(sealed_run(), sql="SELECT * FROM trials")}
    assert found.keys() == records.keys() == {row.trial for row in judged}
    for row in judged:
        got, record = found[row.trial], records[row.trial]
        same = ("pair", "index", "workload", "arm", "world", "seed", "variation", "fault_class", "variant", "status")
        assert all(got[name] == getattr(record, name) for name in same)
        assert got["tokens_destroyed"] == row.work.destroyed
        assert got["tokens_billed"] == row.work.live + row.work.dead_end + row.work.charged + row.work.spontaneous
        assert (got["duplicated"], got["intended"], got["lost"]) == (row.duplicated, row.intended, row.lost)
        assert (got["success"], got["exposed"], got["counted"]) == (row.success, row.exposed, True)
        assert got["faults_fired"] == row.exposure["fired"]


def test_trials_come_in_the_order_of_every_derived_file() -> None:
    with TraceStore.open(sealed_run()) as store:
        assert [row["trial"] for row in rows_of(sealed_run(), sql="SELECT trial FROM trials")] == [
            record.id for record in store.records()
        ]


def test_effects_are_those_of_the_truth_with_the_keys_of_the_findings() -> None:
    with TraceStore.open(sealed_run()) as store:
        durable = {(t.record.id, n) for t in store.iter() for n, e in enumerate(t.truth) if e.kind == "effect"}
    found = rows_of(sealed_run(), sql="SELECT * FROM effects")
    assert {(row["trial"], row["position"]) for row in found} == durable
    lines = [json.loads(line) for line in (sealed_run() / "findings.jsonl").read_text().splitlines()]
    assert len(found) == sum(line["observed"] for line in lines)
    surplus = sum(max(0, line["observed"] - line["required"]) for line in lines if line["required"])
    assert sum(row["duplicate"] for row in found) == surplus > 0
    assert sum(row["stale"] for row in found) == sum(line["stale"] for line in lines)
    per_key = Counter((row["trial"], row["boundary"], row["natural_key"]) for row in found)
    assert per_key == Counter(
        {(ln["trial"], ln["boundary"], ln["key"]): ln["observed"] for ln in lines if ln["observed"]}
    )


def test_the_call_behind_an_effect_crossed_before_it_at_the_same_boundary() -> None:
    sql = """SELECT count(*) FROM effects e LEFT JOIN calls c USING (run, trial, call_id)
             WHERE e.call_id IS NOT NULL AND (c.boundary IS DISTINCT FROM e.boundary OR c.crossings < 1
                   OR c.crossed_ms > e.at_ms)"""
    assert one(sql) == 0
    assert one("SELECT count(*) FROM effects WHERE call_id IS NOT NULL") > 100


def test_a_finding_names_its_effects_and_who_caused_them() -> None:
    b = Build()
    b.ask("k")
    b.ask("k")
    b.ask("other", commits=0, said="err")
    (finding, _) = score(b.seal(), Toy(want("k"), want("other"))).findings
    assert [held.position for held in finding.held] == [1, 3]
    rows = extract.of_finding("t", finding)["held"]
    assert [(r["occurrence"], r["duplicate"], r["stale"]) for r in rows] == [(1, False, False), (2, True, False)]
    assert len({r["cause"] for r in rows}) == 2


def test_as_many_effects_are_stale_as_the_finding_counts() -> None:
    held = [[1, "c1", True], [2, "c2", True], [3, "c3", False]]
    finding = msgspec.convert(
        {
            "boundary": "b",
            "key": "k",
            "required": 2,
            "observed": 3,
            "duplicated": 1,
            "lost": 0,
            "stale": 1,
            "held": held,
        },
        Finding,
    )
    rows = extract.of_finding("t", finding)["held"]
    assert [row["stale"] for row in rows] == [True, False, False]
    assert [row["superseded"] for row in rows] == [True, True, False]
    assert [row["duplicate"] for row in rows] == [False, False, True]


def test_a_receipt_that_two_calls_were_told_names_no_cause_before_the_oracle_does() -> None:
    b = Build()
    b.ask("k", receipt="same", commits=1)
    b.ask("k", receipt="own", commits=0)
    b.really("effect", boundary="transport", names=["k"], receipt="same")
    b.really("effect", boundary="transport", names=["k"], receipt="own")
    told = {row["receipt"]: row["told"] for row in extract.of_trial(b.seal())["effects"]}
    assert told["same"] == "c0"
    assert told["own"] is not None
    b.ask("k", receipt="same", commits=0)
    told = {row["receipt"]: row["told"] for row in extract.of_trial(b.seal())["effects"]}
    assert told["same"] is None


# --- the cookbook -------------------------------------------------------------------------------------------------


def test_every_recipe_is_run_by_a_test() -> None:
    tested = Path(__file__).read_text()
    assert all(f'recipe("{r.name}")' in tested for r in COOKBOOK)


def test_duplicates_by_arm_are_those_of_the_summary() -> None:
    found = {row["arm"]: row for row in recipe("duplicates-by-arm")}
    primary = summary()["primary"]["duplicate_effect_rate"]
    assert set(found) == set(summary()["arms"])
    for arm, row in found.items():
        assert (row["duplicated"], row["intended"]) == (primary[arm]["duplicated"], primary[arm]["intended"])
        assert row["rate"] == pytest.approx(primary[arm]["estimate"])
        assert row["lost"] == sum(summary()["by_boundary"][b][arm]["lost"] for b in PRIMARY)


def test_work_by_fault_is_that_of_the_summary() -> None:
    found = recipe("work-by-fault")
    assert found
    for row in found:
        entry = summary()["by_fault"][row["fault_class"]][row["arm"]]["work_destroyed_per_fault"]
        assert row["tokens_destroyed"] == entry["tokens_destroyed"]
        assert row["tokens_per_fault"] == pytest.approx(entry["estimate"])


def test_duplicates_and_faults_are_all_duplicates_each_with_the_fault_before() -> None:
    found = recipe("duplicates-and-faults")
    assert len(found) == one("SELECT count(*) FROM effects WHERE duplicate") > 0
    hit = [row for row in found if row["fault"] is not None]
    assert hit
    assert all(row["ms_after_fault"] >= 0 for row in hit)
    gross = sum(entry["duplicates_gross"] for arm, entry in summary()["primary"]["duplicate_effect_rate"].items()
                if arm in summary()["arms"])  # fmt: skip
    primary = [row for row in found if row["boundary"] in PRIMARY]
    twins = one("SELECT sum(duplicates_gross) FROM trials WHERE fault_class = 'none'")
    assert len(primary) == gross + twins


def test_losses_by_boundary_are_those_of_the_summary() -> None:
    lost: Counter = Counter()
    for row in recipe("losses-by-boundary"):
        assert row["status"] not in ("exactly_once", "duplicate", "phantom")
        lost[row["boundary"], row["arm"]] += row["lost"]
    wanted = {
        (b, arm): e["lost"] for b, arms in summary()["by_boundary"].items() for arm, e in arms.items() if e["lost"]
    }
    assert lost == Counter(wanted)


def test_verdicts_by_arm_are_those_of_the_summary() -> None:
    found: dict[str, dict[str, int]] = {arm: {} for arm in summary()["arms"]}
    for row in recipe("verdicts-by-arm"):
        found[row["arm"]][row["verdict"]] = row["times"]
    assert found == summary()["verdicts"]


def test_exposure_is_that_of_the_summary() -> None:
    found = recipe("exposure")
    assert found
    for row in found:
        entry = summary()["by_fault"][row["fault_class"]][row["arm"]]["exposure"]
        assert all(row[state] == entry[state] for state in ("armed", "fired", "observed", "expired"))


def test_pairs_that_differ_are_pairs_of_two_arms() -> None:
    rows = {(r["pair"], r["arm"]): r for r in rows_of(sealed_run(), sql="SELECT * FROM trials")}
    found = recipe("pairs-that-differ")
    for row in found:
        assert (row["arm_a"], row["arm_b"]) == ("journaled", "naive")
        assert rows[rows_pair(row["trial_a"]), "journaled"]["duplicated"] == row["duplicated_a"] != row["duplicated_b"]
    differ = [
        p for p, arm in rows if arm == "naive" and rows[p, arm]["duplicated"] != rows[p, "journaled"]["duplicated"]
    ]
    assert len(found) == len(differ)


def rows_pair(trial: str) -> str:
    return str(one(f"SELECT pair FROM trials WHERE trial = '{trial}'"))


def test_seam_times_count_every_call() -> None:
    found = recipe("seam-times")
    assert sum(row["calls"] for row in found) == one("SELECT count(*) FROM calls")
    assert {row["seam"] for row in found} == {"S1", "S2", "S3"}
    assert all(row["p50_ms"] <= row["p99_ms"] for row in found if row["p50_ms"] is not None)


def test_restarts_are_the_deaths_of_the_truth() -> None:
    with TraceStore.open(sealed_run()) as store:
        deaths = [(t.record.id, e.data["epoch"]) for t in store.iter() for e in t.truth
                  if e.kind == "exit" and e.data.get("signal")]  # fmt: skip
        began = {(t.record.id, e.epoch) for t in store.iter() for e in t.trace if e.kind == "epoch"}
    found = [(row["trial"], row["died"]) for row in recipe("restarts")]
    assert sorted(found) == sorted((trial, epoch) for trial, epoch in deaths if (trial, epoch + 1) in began)


# --- asking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT armm FROM trials", "arm (trials)"),
        ("SELECT t.duplicatd FROM trials t", "duplicated (trials, findings)"),
        ("SELECT * FROM trails", f"allowed: {', '.join(table.name for table in TABLES)}; did you mean trials?"),
        ("SELECT * FROM bogus", f"allowed: {', '.join(table.name for table in TABLES)}; tables and columns:"),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("DROP TABLE trials", "one SELECT"),
        ("CREATE TABLE mine AS SELECT 1", "one SELECT"),
        ("INSERT INTO _run0.trials SELECT * FROM _run0.trials", "one SELECT"),
        ("COPY trials TO 'out.csv'", "one SELECT"),
        ("ATTACH 'other.db'", "one SELECT"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM read_text('manifest.json')", "disabled"),
        ("SELECT 1 / CAST(arm AS INTEGER) FROM trials", "convert"),
        ("", "one SELECT"),
    ],
)
def test_what_is_no_query_is_refused_in_one_line(sql: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rows_of(sealed_run(), sql=sql)
    assert said.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_formats() -> None:
    held = ask.sources([sealed_run()], [build.stored(sealed_run(), None, QUIET)])
    sql = "SELECT 'a|b' AS x, 1.5 AS y, NULL AS z, [1, 2] AS l, true AS b, 'c,\"d' AS x"

    def told(form: str) -> str:
        return "\n".join(ask.told(ask.ask(held, sql), form))

    assert list(csv.reader(io.StringIO(told("csv")))) == [
        ["x", "y", "z", "l", "b", "x"],
        ["a|b", "1.5", "", "[1,2]", "true", 'c,"d'],
    ]
    (only,) = json.loads(told("json"))
    assert only == {"x": "a|b", "y": 1.5, "z": None, "l": [1, 2], "b": True, "x_2": 'c,"d'}
    assert told("markdown").splitlines()[2] == '| a\\|b | 1.5 |  | [1,2] | true | c,"d |'
    assert [len(line.split()) for line in told("table").splitlines()] == [6, 6, 5]
    assert json.loads("\n".join(ask.told(ask.ask(held, "SELECT 1 WHERE false"), "json"))) == []
    with pytest.raises(ConfigError, match="table, csv, json, markdown"):
        told("xml")


def test_a_thousand_rows_come_in_order_and_as_valid_json() -> None:
    held = ask.sources([sealed_run()], [build.stored(sealed_run(), None, QUIET)])
    lines = ask.told(ask.ask(held, "SELECT range AS n FROM range(5000) ORDER BY n"), "json")
    assert [row["n"] for row in json.loads("\n".join(lines))] == list(range(5000))


# --- the cache ----------------------------------------------------------------------------------------------------


def test_the_store_is_built_once_and_again_when_the_run_changed(tmp_path: Path) -> None:
    run = copied(tmp_path)
    steps: list[int] = []

    def count(done: int, total: int, note: str) -> None:
        steps.append(done)

    first = build.stored(run, None, count)
    assert first == run / "cache" / "query.duckdb"
    built = len(steps)
    assert built > 1
    build.stored(run, None, count)
    assert len(steps) == built
    kept = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(kept[:-1]))
    build.stored(run, None, count)
    assert len(steps) == 2 * built
    assert rows_of(run, sql="SELECT count(*) AS n FROM trials WHERE success IS NULL") == [{"n": 1}]


def test_the_sealed_run_stays_as_it_was(tmp_path: Path) -> None:
    run = copied(tmp_path)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    rows_of(run, sql="SELECT 1")
    after = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and "cache" not in p.parts}
    assert after == before
    assert [p.name for p in (run / "cache").iterdir()] == ["query.duckdb"]


def test_a_damaged_store_is_built_again_and_another_folder_is_taken(tmp_path: Path) -> None:
    run = copied(tmp_path)
    (run / "cache").mkdir()
    (run / "cache" / "query.duckdb").write_bytes(b"no database")
    assert rows_of(run, sql="SELECT count(*) > 0 AS some FROM calls") == [{"some": True}]
    elsewhere = build.stored(run, tmp_path / "stores", QUIET)
    assert elsewhere.parent == tmp_path / "stores"


def test_an_unscored_run_has_its_raw_tables_and_says_what_is_missing(tmp_path: Path) -> None:
    run = copied(tmp_path)
    for name in ("rows.jsonl", "findings.jsonl", "summary.json", "metrics.csv"):
        (run / name).unlink()
    held = ask.sources([run], [build.stored(run, None, QUIET)])
    (said,) = ask.unscored(held)
    assert "copy is not scored: findings" in said
    assert ask.unscored(ask.sources([sealed_run()], [build.stored(sealed_run(), None, QUIET)])) == []
    counts = "SELECT (SELECT count(*) FROM calls) AS calls, (SELECT count(*) FROM effects) AS effects"
    effects = rows_of(sealed_run(), sql="SELECT count(DISTINCT (trial, position)) AS n FROM effects")[0]["n"]
    assert rows_of(run, sql=counts) == [{"calls": one("SELECT count(*) FROM calls"), "effects": effects}]
    assert rows_of(run, sql="SELECT count(success) AS s, count(counted) AS c, count(*) > 0 AS n FROM trials") == [
        {"s": 0, "c": 0, "n": True}
    ]
    wrong = """SELECT count(*) AS n FROM a.effects x JOIN b.effects y USING (trial, position)
               WHERE x.call_id IS NOT NULL AND x.call_id <> y.call_id"""
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{build.stored(run, None, QUIET)}' AS a (READ_ONLY)")
        con.execute(f"ATTACH '{build.stored(sealed_run(), None, QUIET)}' AS b (READ_ONLY)")
        assert con.execute(wrong).fetchall() == [(0,)]


def test_a_run_scored_by_an_earlier_version_says_so(tmp_path: Path) -> None:
    run = copied(tmp_path)
    lines = [json.loads(line) for line in (run / "findings.jsonl").read_text().splitlines()]
    (run / "findings.jsonl").write_text("".join(json.dumps({**ln, "held": []}) + "\n" for ln in lines))
    (said,) = ask.unscored(ask.sources([run], [build.stored(run, None, QUIET)]))
    assert "earlier version" in said


def test_trials_beyond_the_pair_at_which_a_run_ended_are_not_missed(tmp_path: Path) -> None:
    run = copied(tmp_path)
    rows = (run / "rows.jsonl").read_text().splitlines(keepends=True)
    last = max(json.loads(row)["index"] for row in rows)
    beyond = {json.loads(row)["trial"] for row in rows if json.loads(row)["index"] == last}
    (run / "rows.jsonl").write_text("".join(row for row in rows if json.loads(row)["index"] < last))
    found = (run / "findings.jsonl").read_text().splitlines(keepends=True)
    (run / "findings.jsonl").write_text("".join(line for line in found if json.loads(line)["trial"] not in beyond))
    said = ask.unscored(ask.sources([run], [build.stored(run, None, QUIET)]))
    assert "trials were sealed after the run was scored" in said[0]
    held = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**held, "stopping": {"stopped_at": last}}))
    assert ask.unscored(ask.sources([run], [build.stored(run, None, QUIET)])) == []


def test_a_run_that_is_named_twice_is_refused_and_not_counted_twice(tmp_path: Path) -> None:
    run = copied(tmp_path)
    (tmp_path / "other name").symlink_to(run)
    with pytest.raises(ConfigError, match="named twice"):
        ask.sources([run, tmp_path / "other name"], [run, run])


def test_a_query_that_is_no_text_is_bad_input(tmp_path: Path) -> None:
    held = ask.sources([sealed_run()], [build.stored(sealed_run(), None, QUIET)])
    with pytest.raises(ConfigError, match="UTF-8"):
        ask.ask(held, "SELECT '\udcff'")


def test_trials_beyond_the_registered_prefix_are_not_counted(tmp_path: Path) -> None:
    run = copied(tmp_path)
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    left_out = lines[-1].split(",")[0]
    (run / "metrics.csv").write_text("".join(line for line in lines if not line.startswith(left_out)))
    found = rows_of(run, sql="SELECT trial, success IS NOT NULL AS judged FROM trials WHERE NOT counted")
    assert found == [{"trial": left_out, "judged": True}]


def test_several_runs_are_told_apart(tmp_path: Path) -> None:
    run = copied(tmp_path)
    found = rows_of(run, sealed_run(), sql="SELECT run, count(*) AS n FROM trials GROUP BY run ORDER BY run")
    assert [row["run"] for row in found] == ["copy", "run"]
    assert len({row["n"] for row in found}) == 1
    same = ask.sources([run, tmp_path / "x" / "copy"], [run, run])
    assert [s.name for s in same] == [str(run), str(tmp_path / "x" / "copy")]


def test_two_builders_at_once_do_no_harm(tmp_path: Path) -> None:
    run = copied(tmp_path)
    code = (
        "import sys; from pathlib import Path; from harness.query.build import stored; from harness.query import ask\n"
    )
    code += "p = stored(Path(sys.argv[1]), None, lambda *a: None)\n"
    code += "a = ask.ask(ask.sources([Path(sys.argv[1])], [p]), 'SELECT count(*) FROM calls'); print(next(a.rows)[0])"
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(run)], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)
    ]
    said = [int(process.communicate()[0]) for process in both]
    assert said == [one("SELECT count(*) FROM calls")] * 2
    assert [p.name for p in (run / "cache").iterdir()] == ["query.duckdb"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    run = copied(tmp_path)
    code = "import resource, sys; from pathlib import Path; from harness.query.build import stored\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    code += "stored(Path(sys.argv[1]), None, lambda *a: None)"
    done = subprocess.run([sys.executable, "-c", code, str(run)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ConfigError" in done.stderr.splitlines()[-1]
    assert "the disk is full" in done.stderr.splitlines()[-1]
    assert list((run / "cache").iterdir()) == []


def test_damaged_findings_are_named(tmp_path: Path) -> None:
    run = copied(tmp_path)
    with (run / "findings.jsonl").open("a") as file:
        file.write("{broken\n")
    with pytest.raises(ConfigError, match=r"findings\.jsonl:\d+: the line is damaged.*agentmesh score"):
        build.stored(run, None, QUIET)


# --- the command --------------------------------------------------------------------------------------------------


def invoke(*words: str, stdin: str | None = None) -> Any:
    app = typer.Typer()
    command.add(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["query", *words], input=stdin)


def test_the_command_asks_and_limits() -> None:
    run = str(sealed_run())
    done = invoke(run, "SELECT trial FROM trials", "--format", "csv", "--limit", "2")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 3
    assert "more than 2 rows" in done.stderr
    done = invoke(run, "-", "--format", "json", stdin="SELECT count(*) AS n FROM trials")
    assert json.loads(done.stdout)[0]["n"] > 0
    done = invoke(run, "duplicates-by-arm", "--format", "markdown")
    assert done.stdout.startswith("| arm | trials |")
    assert "more than" not in done.stderr


def test_the_command_prints_schema_and_cookbook_without_a_run() -> None:
    done = invoke("--schema")
    assert all(f"{table.name}: " in done.stdout for table in TABLES)
    assert len(done.stdout.splitlines()) == len(list(described()))
    done = invoke("--cookbook")
    assert all(f"-- {r.name}: {r.question}" in done.stdout for r in COOKBOOK)
    assert isinstance(invoke("only").exception, ConfigError)
    assert isinstance(invoke(str(sealed_run()), "SELECT 1", "--format", "xml").exception, ConfigError)
    assert "no run in this folder" in str(invoke("nowhere", "SELECT 1").exception)
