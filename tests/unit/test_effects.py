"""Effect accounting on trials written by hand and a toy oracle: every class of finding."""

from __future__ import annotations

import pytest
from handmade import Build, Toy, want
from msgspec.structs import replace

from harness.core.errors import HarnessBug
from harness.core.records import Finding, Held, Intent, SealedTrial
from harness.score import score


def only(trial: SealedTrial, *intents: Intent) -> Finding:
    (finding,) = score(trial, Toy(*intents)).findings
    return finding


def numbers(f: Finding) -> tuple[int, int, int, str]:
    return f.observed, f.duplicated, f.lost, f.status


def test_exactly_once() -> None:
    b = Build()
    b.ask("k")
    found = only(b.seal(), want("k"))
    assert found == Finding(
        boundary="transport",
        key="k",
        required=1,
        observed=1,
        duplicated=0,
        lost=0,
        stale=0,
        delegation="d",
        held=(Held(1, "c0"),),
    )


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (1, (1, 0, 1, "never_attempted")),
        (2, (2, 0, 0, "exactly_once")),
        (3, (3, 1, 0, "duplicate")),
        (9, (9, 2, 0, "duplicate")),  # at most as many as were intended
    ],
)
def test_a_legitimate_repeat_is_no_duplicate(times: int, expected: tuple) -> None:
    b = Build()
    for _ in range(times):
        b.ask("k")
    assert numbers(only(b.seal(), want("k", required=2))) == expected


@pytest.mark.parametrize(
    ("status", "how"),
    [
        ("never_attempted", None),
        ("wrongly_merged", dict(crossed=0, commits=0, said="ok", receipt="other")),
        ("over_suppressed_silent", dict(crossed=0, commits=0, said="ok")),
        ("over_suppressed_silent", dict(crossed=0, commits=0, said="ok", receipt="nobody's")),
        ("false_reject", dict(crossed=0, commits=0, said="err")),
        ("false_reject", dict(crossed=0, commits=0, said="refused")),
        ("false_reject", dict(crossed=0, commits=0, said="refused", receipt="other")),
        ("lost_in_flight", dict(crossed=1, commits=0, said="err")),
        ("lost_in_flight", dict(crossed=1, commits=0, said="ok")),
        ("lost_in_flight", dict(crossed=3, commits=0, said="ok", receipt="other")),
        ("lost_in_flight", dict(crossed=0, commits=0, said="")),  # the process died within the arm
    ],
)
def test_every_loss_has_one_class(status: str, how: dict | None) -> None:
    b = Build()
    b.ask("other")
    b.truth[-1] = replace(b.truth[-1], data={**b.truth[-1].data, "receipt": "other"})
    if how is not None:
        b.ask("k", **how)
    found = score(b.seal(), Toy(want("k"), want("other"))).findings
    assert [numbers(f) for f in found] == [(0, 0, 1, status), (1, 0, 0, "exactly_once")]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (dict(crossed=0, commits=0, said="ok"), "over_suppressed_silent"),
        (dict(crossed=0, commits=0, said="refused"), "false_reject"),
        (dict(crossed=1, commits=0, said="err"), "lost_in_flight"),
    ],
)
def test_the_second_of_two_may_be_lost(how: dict, status: str) -> None:
    """The first went through and its caller was told ok; that says nothing about the second."""
    b = Build()
    b.ask("k")
    b.ask("k", **how)
    assert numbers(only(b.seal(), want("k", required=2))) == (1, 0, 1, status)


def test_an_effect_whose_retry_was_suppressed_is_not_lost() -> None:
    b = Build()
    b.ask("k", said="err")
    b.ask("k", crossed=0, commits=0, receipt="r3")
    assert numbers(only(b.seal(), want("k"))) == (1, 0, 0, "exactly_once")


def test_foreign_receipts_are_counted_even_where_nothing_is_lost() -> None:
    b = Build()
    b.ask("k")
    mine = b.truth[-1].data["receipt"]
    b.ask("other")
    b.ask("other", crossed=0, commits=0, receipt=b.truth[-1].data["receipt"])
    b.ask("other", crossed=0, commits=0, receipt=mine)
    b.ask("other", crossed=0, commits=0, receipt=mine)
    trial = b.seal()
    scored = score(trial, Toy(want("k"), want("other")))
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.trial.trace[-1].data == {"kind": "score", "foreign_receipts": 2}
    assert scored.trial.trace[:-1] == trial.trace


def test_a_boundary_may_answer_with_other_ids_than_its_sink_has() -> None:
    """Row ids count per table and the audit trail per service: the same text names two rows."""
    b = Build()
    b.ask("k", commits=0, receipt="row 1")
    b.really("effect", boundary="transport", names=["k"], receipt="row 1")
    b.ask("other", commits=0, receipt="row 1")
    b.really("effect", boundary="transport", names=["other"], receipt="row 2")
    b.ask("other", crossed=0, commits=0, receipt="row 1")
    trial = b.seal()
    assert score(trial, Toy(want("k"), want("other"))).trial is trial


@pytest.mark.parametrize(("held", "lost"), [("database", "transport"), ("transport", "database")])
def test_receipts_of_two_boundaries_do_not_meet(held: str, lost: str) -> None:
    b = Build()
    b.ask("other", boundary=held)
    b.ask("k", boundary=lost, crossed=0, commits=0, receipt=b.truth[-1].data["receipt"])
    found = score(b.seal(), Toy(want("k", boundary=lost), want("other", boundary=held))).findings
    assert [f.status for f in found] == ["over_suppressed_silent", "exactly_once"]


@pytest.mark.parametrize(
    ("attempts", "stale"),
    [([1, 1], 0), ([1, 2], 1), ([1, 2, 2], 1), ([1, 1, 2], 2), ([1, 1, 1], 0), ([1], 0)],
)
def test_stale_duplicates_come_from_superseded_attempts(attempts: list[int], stale: int) -> None:
    b = Build()
    for b.attempt in attempts:
        b.ask("k")
    found = only(b.seal(), want("k"))
    assert (found.observed, found.stale) == (len(attempts), stale)


def test_stale_by_an_earlier_process_of_the_same_attempt() -> None:
    b = Build()
    b.ask("k", said="")
    b.epoch = 1
    b.ask("k")
    assert only(b.seal(), want("k")).stale == 1


def test_stale_are_at_most_the_surplus() -> None:
    b = Build()
    b.ask("k")
    b.ask("k")
    b.attempt = 2  # which found both of them there, and went on
    assert only(b.seal(), want("k")).stale == 1


@pytest.mark.parametrize(
    ("calls", "held", "stale"),
    [
        # Attempt 1 sent one request that was lost on its way; both durable effects are of attempt 2.
        ([(1, None), (2, "r"), (2, "r")], [None, "r"], 0),
        # The same, and the lost request is the last to come out of the arm: the receipts still tell.
        ([(2, "r1"), (2, "r2"), (1, None)], ["r1", "r2"], 0),
        # Nobody got an answer: every effect has a crossing of its own, as far as they go.
        ([(1, None), (2, None)], ["r1", "r2"], 1),
        # One crossing was sent twice on its way.
        ([(1, None)], ["r1", "r2", "r3"], 2),
    ],
)
def test_each_effect_is_laid_at_the_right_door(calls: list[tuple], held: list, stale: int) -> None:
    b = Build()
    for b.attempt, receipt in calls:
        b.ask("k", commits=0, said="ok" if receipt else "err", receipt=receipt)
    for receipt in held:
        b.really("effect", boundary="transport", names=["k"], receipt=receipt)
    b.attempt = 2
    found = only(b.seal(), want("k"))
    assert (found.observed, found.stale) == (len(held), stale)


def test_phantoms_and_effects_without_a_key() -> None:
    b = Build()
    b.ask("k")
    b.ask("acme2/k")
    b.ask("acme2/k")
    b.really("effect", boundary="database", names=[], receipt=None)
    found = score(b.seal(), Toy(want("k"))).findings
    assert [(f.boundary, f.key, f.required, *numbers(f)) for f in found] == [
        ("transport", "k", 1, 1, 0, 0, "exactly_once"),
        ("database", "", 0, 1, 0, 0, "phantom"),
        ("transport", "acme2/k", 0, 2, 0, 0, "phantom"),
    ]
    assert [f.delegation for f in found] == ["d", "", "d"]


def test_a_batch_is_all_of_its_effects() -> None:
    b = Build()
    b.ask("k", "k", "m")
    b.ask("m")
    found = score(b.seal(), Toy(want("k", required=2), want("m"))).findings
    assert [numbers(f) for f in found] == [(2, 0, 0, "exactly_once"), (2, 1, 0, "duplicate")]


def test_several_rows_of_one_statement_are_several_effects_of_one_call() -> None:
    b = Build()
    b.ask("k", "m", commits=0, receipt="r-k")
    b.really("effect", boundary="transport", names=["k"], receipt="r-k")
    b.really("effect", boundary="transport", names=["m"], receipt="r-m")
    scored = score(b.seal(), Toy(want("k"), want("m")))
    assert {f.status for f in scored.findings} == {"exactly_once"}
    assert scored.trial.trace[-1].kind != "note"


def test_an_oracle_that_names_a_key_twice_breaks_the_conservation() -> None:
    b = Build()
    b.ask("k")
    with pytest.raises(HarnessBug, match="not the sum"):
        score(b.seal(), Toy(want("k"), want("k")))


def test_a_call_that_an_arm_made_up_is_nobodys() -> None:
    b = Build()
    b.really("crossed", call_id="forged", boundary="transport", delegation="d", phase="p", attempt=1)
    b.really("effect", boundary="transport", names=["k"], receipt="r")
    assert only(b.seal(), want("k")).status == "exactly_once"
