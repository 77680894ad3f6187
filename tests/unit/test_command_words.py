"""What commands say to a newcomer: a recipe that is not there, and what the columns of a plan mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from sealedrun import sealed_run

from harness import timeline
from harness.commands import power, query, specs
from harness.core.errors import ConfigError
from harness.query.cookbook import BY_NAME
from harness.report.timeline import Chosen
from harness.specs.language import Pattern, Spec
from harness.stats.power import Power
from harness.trace_store import TraceStore


@pytest.mark.parametrize("text", ["bogus", "duplicates by arm", "", "exposures "])
def test_words_that_are_no_sql_are_answered_with_the_recipes(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        query._split(["RUN", text])
    assert caught.value.problem == f"there is no query {text.strip()!r}"
    assert caught.value.allowed == f"{', '.join(BY_NAME)}, or a SELECT"


@pytest.mark.parametrize("text", ["SELECT 1", "selec arm from trials", "with x", "DROP TABLE trials", "frob(1)"])
def test_what_is_plainly_sql_is_left_to_the_database(text: str) -> None:
    assert query._split(["RUN", text]) == ([Path("RUN")], text)


def test_a_plan_says_what_is_counted_and_that_the_best_case_is_one() -> None:
    found = [
        Power("GO", {60: 0.02, 800: 0.584}, "more than 800", 652, 60),
        Power("STOP", {60: 0.0, 800: 0.0}, "more than 800", "more than 800", "not possible with these rates"),
    ]
    head, go, stop, *_, last = power.table(found, [60, 800])
    assert head.endswith("  pairs, 90 %  pairs, 50 %  pairs, best case")
    assert go.split() == ["GO", "2%", "58%", ">", "800", "652", "60"]
    assert stop.split() == ["STOP", "0%", "0%", ">", "800", ">", "800", "never"]
    assert len({len(line) for line in (head, go, stop)}) == 1
    assert last.startswith("pairs, best case: with fewer, not even data that all speak for it can show it")


def test_when_a_specification_applies_is_said_in_words() -> None:
    where = {
        "state": ["armed", "fired"],
        "ms": {"least": 0, "below": 9},
        "fate": {"not": None},
        "how": {"known": False},
    }
    when = Pattern(event=("fault/fired", "exit"), where=where)
    spec = Spec(id="x", says="It `holds`.", applies_when=when, never=Pattern(event="exit"))
    assert specs._only_when(spec) == (
        " (only in trials with the event fault/fired or the event exit whose state is armed or fired and whose ms is "
        "at least 0 and whose ms is below 9 and whose fate is not nothing and whose how is not given)"
    )


def test_a_pair_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with TraceStore.open(sealed_run()) as store:
        last = max(record.index for record in store.records())
    with pytest.raises(ConfigError) as caught:
        timeline.pairs(sealed_run(), [Chosen(last + 1, "")], ["naive"])
    assert caught.value.allowed == f"pairs 0 to {last}"
    with TraceStore.create(tmp_path / "run", {}):
        pass
    with pytest.raises(ConfigError) as caught:
        timeline.pairs(tmp_path / "run", [Chosen(0, "")], ["naive"])
    assert caught.value.allowed == "nothing: no trial is sealed"
