"""From a folder of sealed trials to its results: score, then report; and the exit code of what was decided.

Apart from `harness.evaluate`, which runs them: a sealed run can be judged again later, elsewhere, by a better oracle.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness import segment
from harness.console import Step
from harness.core.errors import ConfigError
from harness.trace_store import TraceStore

if TYPE_CHECKING:
    from harness.report.prereg import Prereg
    from harness.report.summary import Beside

FULL = "every trial that was sealed is safe; make room, then `agentmesh score` and `agentmesh report` on this folder"
GATE = {"GO": 0, "GO_NARROW": 10, "STOP": 11, "INCONCLUSIVE": 12, "INVALID": 13}
"""Exit code of each decision, with `--gate`."""

UNCALIBRATED = "the registered calibration was not made before the first trial"
OTHERWISE_CALIBRATED = "calibration.json is not the file that was made before the first trial"


class CheckForm(Struct):
    """What is read of a check."""

    name: str
    passed: bool
    question: str = ""
    expected: str = ""
    got: str = ""
    because: str = ""
    numbers: dict[str, float | int | str] = {}


class CalibrationForm(Struct):
    """What is read of `calibration.json`."""

    checks: list[CheckForm]
    passed: bool
    noise_floor: dict[str, float | int | str] = {}
    schedules: dict[str, str] = {}


def stopped_at(held: Mapping[str, Any]) -> int:
    """The number of pairs after which a run was allowed to end, by its manifest: no derived file looks beyond.

    Raises ConfigError for a manifest that names none: to judge no trial would empty what was judged before.
    """
    pairs = held.get("stopping", {}).get("stopped_at")
    pairs = held.get("pairs") if pairs is None else pairs
    if pairs is None:
        raise ConfigError("the manifest names no number of pairs", hint="restore manifest.json from a copy")
    return int(pairs)


def score(folder: Path, step: Step) -> int:
    """Judge all trials of a run by the oracle: `findings.jsonl`, `violations.jsonl`, and `rows.jsonl` for the report.

    Gives their number; step: told of trials done, of all. Raises ConfigError for a folder without a run, a run that has
    lost trials since it ended, a workload without an oracle, or a full disk.
    """
    from harness import score as oracle_side  # imports oracles, which nothing that runs may
    from harness.report.rows import row_of

    with TraceStore.open(folder) as store:
        total = len(counted(store))
        _refuse_incomplete(store)
    registered = store.manifest.get("preregistration", {}).get("document") or {}
    budget = registered.get("design", {}).get("token_budget_per_trial")
    done = 0
    draft = folder / "rows.jsonl.new"
    with segment.disk(folder, FULL):
        with (
            closing(cast("Generator[Any]", oracle_side.score_run(folder, stopped_at(store.manifest)))) as judged,
            draft.open("wb") as file,
        ):
            step(0, total, "")
            for scored in judged:
                file.write(msgspec.json.encode(row_of(replace(scored, budget_tokens=budget))) + b"\n")
                done += 1
                step(done, total, "")
        draft.replace(folder / "rows.jsonl")
    return done


def counted(store: TraceStore) -> set[str]:
    """The trials that derived files rest on: those of the pairs up to where the run was allowed to end, whatever other
    workers had begun by then."""
    pairs = stopped_at(store.manifest)
    return {record.id for record in store.records() if record.index < pairs}


def _refuse_incomplete(store: TraceStore) -> None:
    """A run that ended and has lost trials since must not be judged by those that are left."""
    noted = store.manifest.get("files")
    index = segment.file_sha256(store.folder / "trials.jsonl")
    if noted is not None and (store.dropped or noted.get("trials.jsonl") != index):
        hint = f"`agentmesh verify {store.folder}` says what; --resume runs again the trials that are lost"
        raise ConfigError("trials were lost or changed after the run ended", where=str(store.folder), hint=hint)


def report(folder: Path) -> Mapping[str, Any]:
    """Make `metrics.csv`, the pages, tables, plots and `summary.json` from the rows of a scored run; gives the summary.

    The registration is the one in the manifest, as it was before the first trial. Raises ConfigError for a run that is
    not scored, has no registration, or lacks the registered control arm.
    """
    from harness import timeline
    from harness.report.arrange import registered
    from harness.report.render import compared, write_report, write_summary
    from harness.report.rows import read_rows, write_metrics_csv
    from harness.report.summary import build_summary
    from harness.report.timeline import choose

    with TraceStore.open(folder) as store:
        held, sealed = store.manifest, counted(store)
    registration = registration_of(held, folder)
    path = folder / "rows.jsonl"
    if not path.is_file():
        raise ConfigError("the run is not scored", where=str(folder), hint=f"first: agentmesh score {folder}")
    try:
        rows = read_rows(path)
        summary = build_summary(rows, held, registration, _beside(folder, registration, held))
    except (msgspec.DecodeError, ValueError) as error:
        hint = f"first: agentmesh score {folder}"
        raise ConfigError(f"the run cannot be summarised: {error}", where=str(folder), hint=hint) from error
    if {row.trial for row in rows} != sealed:
        problem = f"{len(rows)} trials are scored, {len(sealed)} are sealed, and they are not the same"
        raise ConfigError(problem, where=str(folder), hint=f"first: agentmesh score {folder}")
    rows, arms = registered(rows, held, registration), compared(summary)
    with segment.disk(folder, FULL):
        write_metrics_csv(folder / "metrics.csv", rows)
        write_report(folder, summary, rows, held, timeline.pairs(folder, choose(rows, arms), arms))
        write_summary(folder, summary)  # last: a folder with a summary is a finished one
        (folder / "failure.txt").unlink(missing_ok=True)  # of an earlier start: what it told of is overcome
    return summary


def registration_of(held: Mapping[str, Any], folder: Path) -> Prereg:
    """The registration in the manifest of the run in `folder`, as it was before the first trial. Raises ConfigError
    where there is none, or one that cannot be read."""
    from harness.report.prereg import parse_prereg

    document = held.get("preregistration", {}).get("document")
    if document is None:
        raise ConfigError("the run has no registration to decide by", where=str(folder))
    return parse_prereg(document, where=f"{folder / 'manifest.json'}: preregistration")


def read_calibration(folder: Path) -> dict[str, Any] | None:
    """The content of a run's `calibration.json`, None where none was made. Raises ConfigError for one that cannot be
    read."""
    path = folder / "calibration.json"
    if not path.is_file():
        return None
    try:
        content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        msgspec.convert(content, CalibrationForm)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        hint = "restore it from a copy, or remove it: the run is exploratory without one"
        raise ConfigError(f"the calibration cannot be read: {error}", where=str(path), hint=hint) from error
    return content


def unreported(folder: Path, problem: str) -> ConfigError:
    """What to raise where something needs the results of a run that lacks them."""
    hint = f"first: agentmesh score {folder}, then agentmesh report {folder}"
    return ConfigError(problem, where=str(folder), hint=hint)


def _beside(folder: Path, registration: Prereg, held: Mapping[str, Any]) -> Beside:
    """What the summary tells of a run beside its trials. Raises ConfigError for a calibration that cannot be read."""
    from harness.report.summary import Beside
    from harness.seal import sources
    from harness.status import at_analysis, read_status

    begun = held.get("preregistration", {}).get("digests", {})
    status = at_analysis(registration, read_status(held), sources(), begun)
    calibration = read_calibration(folder)
    if registration.calibration is not None:
        noted = held.get("calibration", {}).get("sha256", "")
        if calibration is None:
            status = replace(status, confirmatory=False, because=(*status.because, UNCALIBRATED))
        elif segment.file_sha256(folder / "calibration.json") != noted:
            status = replace(status, confirmatory=False, because=(*status.because, OTHERWISE_CALIBRATED))
    return Beside(status=msgspec.to_builtins(status), calibration=calibration)


def gate(summary: Mapping[str, Any]) -> int:
    """Exit code of the decision in a summary."""
    return GATE[summary["decision"]["kill_criterion"]]
