"""The summary: its contract, registered order, worst cases, decisions and gates."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from synthetic import INTENDED, PREREG, invalid, manifest, row, synthetic

from harness.metrics import METRICS
from harness.report.arrange import HEADLINE, registered
from harness.report.evidence import DUPLICATES, WORK
from harness.report.rows import BoundaryCounts, Row
from harness.report.summary import build_summary
from harness.report.tables import tables

# --- the contract -------------------------------------------------------------------------------------------------

SUMMARY_KEYS = {
    "schema",
    "schedule",
    "preregistration",
    "world",
    "pairs",
    "trials",
    "arms",
    "primary",
    "by_fault",
    "by_workload",
    "by_boundary",
    "secondary",
    "decision",
}


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return build_summary(synthetic(90), manifest(90), PREREG)


def test_summary_has_the_keys_of_the_contract(summary: dict[str, Any]) -> None:
    assert set(summary) >= SUMMARY_KEYS
    assert set(summary["schedule"]) == {"name", "sha256"}
    assert set(summary["preregistration"]) >= {"sha256", "sealed_before_first_trial"}
    assert set(summary["trials"]) == {"ended", "stuck", "invalid"}
    assert summary["arms"] == list(HEADLINE)
    interval = {"estimate", "ci_low", "ci_high"}
    duplicates, work = summary["primary"][DUPLICATES], summary["primary"][WORK]
    for arm in HEADLINE:
        assert set(duplicates[arm]) >= interval | {"duplicated", "intended", "duplicates_gross", "no_fault_twin"}
        assert set(work[arm]) >= interval | {"tokens_destroyed", "faults_scheduled", "no_fault_twin"}
    for primary in (duplicates, work):
        assert set(primary["difference"]) >= interval | {"control", "treatment", "e_value"}
        assert (primary["difference"]["control"], primary["difference"]["treatment"]) == ("naive", "mesh")
        assert [item["treatment"] for item in primary["differences"]] == list(HEADLINE[1:])
    for arms in summary["by_fault"].values():
        for entry in arms.values():
            assert set(entry) == {DUPLICATES, WORK, "exposure"}
    for arms in summary["by_boundary"].values():
        for entry in arms.values():
            assert set(entry) >= {"intended", "observed", "duplicates", "lost", "stale"}
    assert set(summary["secondary"]) == set(METRICS)
    assert all(
        "estimate" in v or "not_applicable" in v for arms in summary["secondary"].values() for v in arms.values()
    )
    decision = summary["decision"]
    assert set(decision) >= {"kill_criterion", "superiority", "non_inferiority", "pairs_used", "reasons"}
    assert decision["kill_criterion"] in ("GO", "GO_NARROW", "STOP", "INCONCLUSIVE", "INVALID")


def test_summary_is_plain_json_without_nan_or_null(summary: dict[str, Any]) -> None:
    text = json.dumps(summary, allow_nan=False)
    assert "null" not in text


def test_estimates_are_ratios_of_sums_and_lie_in_their_intervals(summary: dict[str, Any]) -> None:
    entry = summary["primary"][DUPLICATES]["naive"]
    assert entry["estimate"] == pytest.approx(entry["duplicated"] / entry["intended"])
    entry = summary["primary"][WORK]["naive"]
    assert entry["estimate"] == pytest.approx(entry["tokens_destroyed"] / entry["faults_scheduled"])
    for primary in (DUPLICATES, WORK):
        for arm in HEADLINE:
            entry = summary["primary"][primary][arm]
            assert entry["ci_low"] <= entry["estimate"] <= entry["ci_high"]


def test_a_material_run_goes_on_and_the_mesh_wins(summary: dict[str, Any]) -> None:
    decision = summary["decision"]
    assert decision["kill_criterion"] == "GO"
    assert decision["decided_at_pair"] >= PREREG.design.pairs_min
    assert decision["superiority"]["on"]
    assert any(reason.startswith("phase 1 (naive alone)") for reason in decision["reasons"])
    assert any(reason.startswith("phase 2 (mesh against naive)") for reason in decision["reasons"])


def test_the_no_fault_twin_stands_beside_and_not_inside() -> None:
    rows = [row("naive", i, duplicated=2) for i in range(10)] + [row("naive", i, "none", 1) for i in range(3)]
    entry = build_summary(rows, manifest(10, ("naive",)), PREREG)["primary"][DUPLICATES]["naive"]
    assert entry["estimate"] == pytest.approx(2 / 11)
    assert entry["no_fault_twin"]["estimate"] == pytest.approx(1 / 11)


def test_both_exposed_pairs_are_shown_beside_intention_to_treat() -> None:
    rows = [row("naive", i, duplicated=2) for i in range(4)]
    rows += [row("mesh", i, duplicated=i % 2, exposed=i % 2 == 0) for i in range(4)]
    mesh = build_summary(rows, manifest(4, ("naive", "mesh")), PREREG)["primary"][DUPLICATES]["mesh"]
    assert mesh["estimate"] == pytest.approx(0.5 / 11)
    assert (mesh["both_exposed"]["pairs"], mesh["both_exposed"]["estimate"]) == (2, 0.0)


# --- registered order ---------------------------------------------------------------------------------------------


def test_a_missing_pair_ends_the_sequence() -> None:
    rows = [row("naive", i) for i in range(10) if i != 6]
    assert build_summary(rows, manifest(10, ("naive",)), PREREG)["pairs"] == 6
    assert [r.index for r in registered(rows, manifest(10, ("naive",)), PREREG)] == list(range(6))


def test_pairs_beyond_the_registered_number_do_not_count() -> None:
    rows = [row("naive", i, duplicated=4) for i in range(20)]
    few = build_summary(rows, manifest(10, ("naive",)), PREREG)
    assert few == build_summary(rows[:10], manifest(10, ("naive",)), PREREG)


def test_the_order_in_which_workers_finished_does_not_matter() -> None:
    rows = synthetic(12)
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    assert build_summary(shuffled, manifest(12), PREREG) == build_summary(rows, manifest(12), PREREG)


def test_an_arm_that_lags_is_compared_on_common_pairs() -> None:
    rows = [row("naive", i, duplicated=1) for i in range(10)] + [row("mesh", i) for i in range(7)]
    difference = build_summary(rows, manifest(10, ("naive", "mesh")), PREREG)["primary"][DUPLICATES]["difference"]
    assert difference["pairs"] == 7


def test_two_trials_in_one_place_are_refused() -> None:
    with pytest.raises(ValueError, match="two trials"):
        build_summary([row("naive", 0), row("naive", 0, trial="again")], manifest(1, ("naive",)), PREREG)


# --- decisions ----------------------------------------------------------------------------------------------------


def drawn(pairs: int) -> list[str]:
    rng = np.random.default_rng(5)
    return [str(f) for f in rng.choice(list(PREREG.faults), pairs, p=[e.weight for e in PREREG.faults.values()])]


def test_nothing_happens_stop() -> None:
    rows = [row("naive", i, fault) for i, fault in enumerate(drawn(400))]
    decision = build_summary(rows, manifest(400, ("naive",)), PREREG)["decision"]
    assert decision["kill_criterion"] == "STOP"
    assert decision["decided_at_pair"] < 400
    assert "not_applicable" in decision["superiority"]


def test_too_few_pairs_are_inconclusive_whatever_they_show() -> None:
    rows = [row("naive", i, duplicated=4) for i in range(PREREG.design.pairs_min - 1)]
    assert build_summary(rows, manifest(800, ("naive",)), PREREG)["decision"]["kill_criterion"] == "INCONCLUSIVE"


def test_suppressing_everything_is_not_superior() -> None:
    """No duplicates, but what should have happened did not: the guard has to fail, and to say so."""
    lost = {name: BoundaryCounts(intended=n, lost=n) for name, n in INTENDED.items()}
    rows = [row("naive", i, f, duplicated=3) for i, f in enumerate(drawn(120))]
    rows += [row("mesh", i, f, boundaries=lost, success=False) for i, f in enumerate(drawn(120))]
    decision = build_summary(rows, manifest(120, ("naive", "mesh")), PREREG)["decision"]
    assert decision["superiority"]["on"] == [DUPLICATES]
    assert not decision["superiority"]["shown"]
    assert set(decision["non_inferiority"]["worse"]) == {"lost_incidence", "task_success"}


def test_an_arm_that_keeps_faults_from_striking_is_not_superior() -> None:
    rows = [replace(r, exposed=False) if r.arm == "mesh" and r.fault_class != "none" else r for r in synthetic(400)]
    decision = build_summary(rows, manifest(400), PREREG)["decision"]
    assert any(claim["shown"] for claim in decision["superiority"]["claims"])
    assert decision["non_inferiority"]["shown"]
    assert not decision["superiority"]["shown"]
    assert any("met the faults of 0% of the pairs" in reason for reason in decision["reasons"])


def test_two_equal_arms_are_compared_and_not_told_apart() -> None:
    rows = [row(arm, i, f, duplicated=i % 3) for i, f in enumerate(drawn(200)) for arm in ("naive", "naive_replica")]
    found = build_summary(rows, manifest(200, ("naive", "naive_replica")), PREREG)
    assert found["primary"][DUPLICATES]["difference"]["treatment"] == "naive_replica"
    assert not found["decision"]["superiority"]["shown"]
    assert found["primary"][DUPLICATES]["difference"]["e_value"] == pytest.approx(1.0)


def test_invalid_trials_are_entered_against_the_claim() -> None:
    """One spoiled trial in fifty: no harm for the control and full harm for the treatment, in both directions."""
    rows = [row("naive", i, duplicated=2) for i in range(50)] + [row("mesh", i) for i in range(50)]
    clean = build_summary(rows, manifest(50, ("naive", "mesh")), PREREG)
    rows[3], rows[57] = invalid("naive", 3), invalid("mesh", 7)
    found = build_summary(rows, manifest(50, ("naive", "mesh")), PREREG)
    assert found["trials"]["invalid"] == 2
    assert [t["status"] for t in found["trouble"]] == ["invalid", "invalid"]
    for arm in ("naive", "mesh"):
        before, after = clean["primary"][DUPLICATES][arm], found["primary"][DUPLICATES][arm]
        assert after["estimate"] == pytest.approx(before["estimate"])
        assert after["ci_low"] <= before["ci_low"]
        assert after["ci_high"] > before["ci_high"]
        assert after["invalid"] == 1
    before, after = (s["primary"][DUPLICATES]["difference"] for s in (clean, found))
    assert after["e_value"] < before["e_value"]
    assert after["ci_low"] < before["ci_low"]
    assert after["ci_high"] > before["ci_high"]


def _bad_digest(rows: list[Row], told: dict[str, Any]) -> None:
    told["preregistration"]["sha256"] = "f" * 64


def _unsealed(rows: list[Row], told: dict[str, Any]) -> None:
    told["preregistration"]["sealed_before_first_trial"] = False


def _other_intents(rows: list[Row], told: dict[str, Any]) -> None:
    rows[5] = replace(rows[5], boundaries={"transport": BoundaryCounts(intended=3)})


def _other_faults(rows: list[Row], told: dict[str, Any]) -> None:
    rows[5] = replace(rows[5], faults_scheduled=1)


def _unequal_pair(rows: list[Row], told: dict[str, Any]) -> None:
    rows.append(row("mesh", 0, "hung_check"))


def _unknown_class(rows: list[Row], told: dict[str, Any]) -> None:
    rows[5] = replace(rows[5], fault_class="cosmic_ray")


def _unexposed(rows: list[Row], told: dict[str, Any]) -> None:
    rows[:] = [replace(r, exposed=False) for r in rows]


def _spoiled(rows: list[Row], told: dict[str, Any]) -> None:
    rows[:10] = [invalid("naive", i) for i in range(10)]


def _other_weights(rows: list[Row], told: dict[str, Any]) -> None:
    mix = {name: {"weight": 10 * entry.weight, "variants": []} for name, entry in PREREG.faults.items()}
    told["schedule"]["resolved"] = {"mix": mix}
    assert build_summary(rows, told, PREREG)["decision"]["failed_gates"] == []
    mix["hung_check"]["weight"] = 5.0


def test_workloads_are_drawn_with_the_registered_weights() -> None:
    mixed = replace(PREREG, design=replace(PREREG.design, workloads={"codegen": 0.75, "relay": 0.25}))
    told = manifest(100, ("naive",))
    mix = {name: {"weight": entry.weight, "variants": []} for name, entry in PREREG.faults.items()}

    def gates(**resolved: Any) -> list[str]:
        told["schedule"]["resolved"] = {"mix": mix, **resolved}
        rows = [row("naive", i, duplicated=2) for i in range(100)]
        failed: list[str] = build_summary(rows, told, mixed)["decision"]["failed_gates"]
        return failed

    assert gates(workloads={"codegen": 3.0, "relay": 1.0}) == []
    wrong = "the schedule draws other weights than the registered ones: "
    assert gates(workloads={"codegen": 1.0}) == [f"{wrong}codegen, relay"]
    assert gates() == [f"{wrong}codegen, relay, (none)"]


def _classes_in_turn(rows: list[Row], told: dict[str, Any]) -> None:
    told["schedule"]["resolved"] = {"mix": {}, "exact": [[{"fault": "hung_check"}]]}


def _no_control(rows: list[Row], told: dict[str, Any]) -> None:
    rows[:] = [replace(r, arm="mesh") for r in rows]


def _first_missing(rows: list[Row], told: dict[str, Any]) -> None:
    del rows[0]


def _no_faults(rows: list[Row], told: dict[str, Any]) -> None:
    rows[:] = [row("naive", i, "none") for i in range(100)]


def _phantoms(rows: list[Row], told: dict[str, Any]) -> None:
    rows[5] = replace(
        rows[5], boundaries=rows[5].boundaries | {"database": BoundaryCounts(intended=3, observed=9, phantom=6)}
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_bad_digest, "registration differs"),
        (_unsealed, "not in the manifest before"),
        (_other_intents, "intended effects"),
        (_other_faults, "scheduled faults"),
        (_unequal_pair, "different faults"),
        (_unknown_class, "not registered: cosmic_ray"),
        (_unexposed, "a fault fired in 0%"),
        (_spoiled, "are invalid"),
        (_phantoms, "explained by no intent"),
        (_other_weights, "other weights than the registered ones"),
        (_classes_in_turn, "in turn"),
        (_no_control, "'naive' was not run"),
        (_first_missing, "first registered pair"),
        (_no_faults, "0] scheduled faults"),
    ],
)
def test_every_gate_can_fail_and_then_nothing_is_decided(spoil: Any, said: str) -> None:
    rows = [row("naive", i, duplicated=2) for i in range(100)]
    told = manifest(100, ("naive",))
    assert build_summary(rows, told, PREREG)["decision"]["failed_gates"] == []
    spoil(rows, told)
    found = build_summary(rows, told, PREREG)
    assert found["decision"]["kill_criterion"] == "INVALID"
    assert any(said in gate for gate in found["decision"]["failed_gates"])
    assert tables(found)  # what there is can still be shown


def test_workloads_are_told_apart_where_there_are_several() -> None:
    rows = [replace(row, workload=("relay", "codegen")[row.index % 2]) for row in synthetic(90)]
    built = build_summary(rows, manifest(90), PREREG)
    assert build_summary(synthetic(90), manifest(90), PREREG)["by_workload"] == {}
    assert list(built["by_workload"]) == ["codegen", "relay"]
    for arm in built["arms"]:
        parts = [built["by_workload"][name][arm][DUPLICATES] for name in built["by_workload"]]
        whole = built["primary"][DUPLICATES][arm]
        assert sum(part["duplicated"] for part in parts) == whole["duplicated"]
        assert sum(part["intended"] for part in parts) == whole["intended"]
