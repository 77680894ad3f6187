"""The checks of a calibration: what is asked of which schedule, and the only answer that lets it pass.

A table and nothing else, so that what the harness is held to can be read in one place, and changed nowhere else.
"""

from __future__ import annotations

from harness.calibration import measures
from harness.calibration.form import Planned

SABOTAGE = "arms.sabotage.arms:"
BY_NAME, EXACT_BYTES = f"{SABOTAGE}BY_NAME", f"{SABOTAGE}EXACT_BYTES"
ATTEMPT_KEYED, SUPPRESS_ALL, FUZZY_MERGE = (
    f"{SABOTAGE}ATTEMPT_KEYED",
    f"{SABOTAGE}SUPPRESS_ALL",
    f"{SABOTAGE}FUZZY_MERGE",
)
REPLICA = "naive_replica"

ROLES = measures.Roles(through="naive", best=BY_NAME, exact=EXACT_BYTES, merging=FUZZY_MERGE, suppressing=SUPPRESS_ALL)

NOISE = "same_arm_twice"
"""The schedule that the noise floor comes from."""

PLANTED = "no_fault"
"""The schedule in whose trials harm is planted."""

CHECKS: tuple[Planned, ...] = (
    Planned(
        name="planted_harm",
        question="Does the oracle find harm that is planted in a trial, all of it and nothing else?",
        schedule=PLANTED,
        measure=measures.planted,
        expected="all found",
    ),
    Planned(
        name="no_fault",
        question="Is there any harm where nothing fails?",
        schedule=PLANTED,
        measure=measures.harm,
        expected="no harm",
    ),
    Planned(
        name="same_arm_twice",
        question="Are two runs of the control arm told apart?",
        schedule=NOISE,
        measure=measures.told_apart(REPLICA),
        expected="no difference",
    ),
    Planned(
        name="too_little_data",
        question="What is decided on fewer pairs than registered?",
        schedule=NOISE,
        measure=measures.too_little_data,
        expected="INCONCLUSIVE",
    ),
    Planned(
        name="broken_gate",
        question="What is decided when faults were placed and not drawn as registered?",
        schedule="ledgers",
        measure=measures.kill_criterion,
        expected="INVALID",
    ),
    Planned(
        name="idempotent",
        question="What is decided where repeats do no harm?",
        schedule="idempotent",
        measure=measures.kill_criterion,
        expected="STOP",
    ),
    Planned(
        name="by_name",
        question="Does a ledger that knows every effect by name show that it has fewer duplicates?",
        schedule="ledgers",
        measure=measures.against_control(BY_NAME),
        expected="fewer duplicates",
    ),
    Planned(
        name="attempt_keyed",
        question="Does a ledger that is keyed on the attempt lose?",
        schedule="ledgers",
        measure=measures.against_control(ATTEMPT_KEYED),
        expected="as many duplicates",
    ),
    Planned(
        name="exact_bytes",
        question="Does a ledger that compares bytes lose, where work is told again in other words?",
        schedule="ledgers",
        measure=measures.against_control(EXACT_BYTES),
        expected="as many duplicates",
    ),
    Planned(
        name="exact_bytes_unvaried",
        question="Does it do well where work is repeated byte for byte?",
        schedule="unvaried",
        measure=measures.against_control(EXACT_BYTES),
        expected="fewer duplicates",
    ),
    Planned(
        name="suppress_all",
        question="Does an arm lose that suppresses everything, and so has no duplicates?",
        schedule="ledgers",
        measure=measures.against_control(SUPPRESS_ALL),
        expected="loses effects",
    ),
    Planned(
        name="fuzzy_merge",
        question="Does a ledger lose that merges what is intended twice?",
        schedule="ledgers",
        measure=measures.against_control(FUZZY_MERGE),
        expected="loses effects",
    ),
    Planned(
        name="discriminates",
        question="Can the main workload tell wrong ledgers from right ones?",
        schedule="ledgers",
        measure=measures.discriminates(ROLES),
        expected="VALID",
    ),
    Planned(
        name="discriminates_unvaried",
        question="Is it called invalid when the agent repeats itself byte for byte?",
        schedule="unvaried",
        measure=measures.discriminates(ROLES),
        expected="INVALID",
    ),
    Planned(
        name="discriminates_undecoyed",
        question="Is a workload without decoys called invalid?",
        schedule="undecoyed",
        measure=measures.discriminates(ROLES),
        expected="INVALID",
    ),
)

PLANTED_TRIALS = 3
"""In how many trials harm is planted; each takes a second."""
