"""The registration: read strictly, and its digest ignores layout."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from synthetic import PREREG, REGISTRATION

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.report.prereg import parse_prereg
from harness.report.prereg.explain import claim_pairs, explain, go_pairs, stop_pairs
from harness.report.prereg.form import Digests, Opportunities
from harness.report.prereg.read import checked
from harness.report.prereg.write import SAID, resealed, with_seal


def test_the_registration_is_read_and_its_digest_ignores_layout() -> None:
    document = strict_yaml.read(REGISTRATION).value
    turned = {key: document[key] for key in reversed(document)}
    assert parse_prereg(turned).sha256 == PREREG.sha256
    assert abs(sum(c.weight for c in PREREG.kill_plan().classes) - 1) < 1e-9
    assert all(entry.sources for entry in PREREG.faults.values())


def _set(path: str, value: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for step in parents:
            document = document[step]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("surprise", 1), "unknown key 'surprise'"),
        (_set("design.pairs_mni", 1), "did you mean 'pairs_min'"),
        (_set("errors.go", 2.0), "below 1"),
        (_set("faults.hung_check.weight", 0.5), "add up to"),
        (_set("faults.hung_check.opportunity", "full_moons"), "check_runs"),
        (_set("faults.hung_check.rate_per_delegation.used", 0.02), "is not"),
        (_set("faults.hung_check.sources", []), "without a source"),
        (_set("design.pairs_min", 900), "above pairs_max"),
        (_set("design.token_reference_per_trial", 90_000), "above token_budget"),
    ],
)
def test_a_registration_that_could_be_misread_is_refused(change: Any, said: str) -> None:
    document = copy.deepcopy(strict_yaml.read(REGISTRATION).value)
    change(document)
    with pytest.raises(ConfigError, match=said):
        parse_prereg(document)


# --- the second version -------------------------------------------------------------------------------------------

SECOND = REGISTRATION.with_name("kill-criterion-003.yaml")
GIVEN = ("arms", "design", "delegation", "faults", "thresholds", "claims", "errors")


def second() -> dict[str, Any]:
    document = copy.deepcopy(strict_yaml.read(SECOND).value)
    document.pop("sealed", None)
    return document


def test_the_first_version_is_read_as_promising_nothing_more() -> None:
    assert (PREREG.stopping, PREREG.phases, PREREG.calibration, PREREG.replication, PREREG.sealed) == (None,) * 5
    assert PREREG.gates.opportunities_min == Opportunities(control_pairs_exposed=0, control_pairs_exposed_per_class=0)
    assert (PREREG.gates.discriminates_min, PREREG.gates.spec_violations) == (0.0, ())
    assert PREREG.content_sha256 == PREREG.sha256
    assert PREREG.sha256.startswith("d8a8531f29b7"), "as runs that were made by it say"


def test_rates_weights_and_thresholds_were_never_tuned() -> None:
    first, third = strict_yaml.read(REGISTRATION).value, second()
    assert {key: third[key] for key in GIVEN} == {key: first[key] for key in GIVEN}
    assert third["gates"].items() >= first["gates"].items()


def test_the_second_version_says_when_to_stop_and_who_decides() -> None:
    held = parse_prereg(second())
    assert held.stopping is not None
    assert held.stopping.goals == ("kill_criterion", "full_claim", "all_pairs")
    assert held.phases is not None
    assert held.phases.kill_criterion.arms == ("naive",)
    assert held.phases.comparison.arms == ("naive", "mesh")
    assert (held.gates.discriminates_min, held.gates.exposed_share_min) == (0.02, 0.5)
    assert (held.design.pairs_min, held.design.pairs_max) == (60, 800)
    assert held.kill_plan() == PREREG.kill_plan()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("schema", "agentmesh-prereg/3"), "did you mean 'agentmesh-prereg/"),
        (_set("stoping", {}), "did you mean 'stopping'"),
        (_set("stopping.rule", "anytime"), "did you mean 'any_time'"),
        (_set("stopping.fractions", [0.9, 0.45]), "not those that the analysis plays: 0.99, 0.495"),
        (_set("stopping.until", "full_clam"), "did you mean 'full_claim'"),
        (_set("stopping.or_until", ["full_claim", "kill_criterion"]), "or_until repeats"),
        (_set("stopping.or_until", ["full_claim", "full_claim"]), "listed twice"),
        (_set("phases.kill_criterion.arms", ["naive", "mesh"]), "by the control 'naive' alone"),
        (_set("phases.kill_criterion.arms", []), "phase 1 looks at no arm"),
        (_set("phases.comparison.arms", ["naive", "bare"]), "registered are 'naive' and 'mesh'"),
        (_set("arms.treatment", "naive"), "both control and treatment"),
        (_set("calibration.must_pass", []), "must_pass is empty"),
        (_set("calibration.must_pass", ["a", "b", "a"]), "'a' is listed twice"),
        (_set("calibration.noise_floor_pairs", 0), "from 1"),
        (_set("replication.alpha", 1.5), "below 1"),
        (_set("missing.harness_crash", "drop"), "rerun_same_seed_once_then_worst_case"),
        (_set("gates.opportunities_min.control_pairs_exposed", 61), "needs 61 pairs, and pairs_min is 60"),
        (_set("gates.opportunities_min.control_pairs_exposed_per_class", 11), "needs 66 pairs"),
        (_set("gates.discriminates_min", -0.1), "from 0"),
        (_set("gates.spec_violations", ["x", "x"]), "listed twice"),
        (_set("sealed", {"at": "yesterday", "digests": {}}), "like"),
        (_set("sealed", {"at": "2026-01-31T12:00:00Z", "digests": {"arms": "0" * 63}}), "64 hexadecimal digits"),
        (_set("sealed", {"at": "2026-01-31T12:00:00Z", "digests": {"arm": "0" * 64}}), "did you mean 'arms'"),
    ],
)
def test_a_second_version_that_could_be_misread_is_refused(change: Any, said: str) -> None:
    document = second()
    change(document)
    with pytest.raises(ConfigError, match=said):
        parse_prereg(document)


@pytest.mark.parametrize("section", ["stopping", "phases", "calibration", "replication", "missing"])
def test_no_section_of_the_second_version_may_be_left_out(section: str) -> None:
    document = second()
    del document[section]
    with pytest.raises(ConfigError, match=f"key '{section}' is missing"):
        parse_prereg(document)


def test_a_section_of_the_second_version_in_the_first_is_named_as_such() -> None:
    document = copy.deepcopy(strict_yaml.read(REGISTRATION).value)
    document["stopping"] = second()["stopping"]
    with pytest.raises(ConfigError, match="belongs to schema agentmesh-prereg/2"):
        parse_prereg(document)


def test_a_registration_without_a_schema_is_refused() -> None:
    document = second()
    del document["schema"]
    with pytest.raises(ConfigError, match="key 'schema' is missing"):
        parse_prereg(document)


# --- the seal as text ---------------------------------------------------------------------------------------------


def digests(digit: str) -> Digests:
    return Digests(**dict.fromkeys(Digests.__struct_fields__, digit * 64))


def sealed_text(text: str, at: str, digit: str) -> str:
    held = checked(strict_yaml.parse(text, "k.yaml"))
    return with_seal(text, resealed(held, at, digests(digit)))


def test_sealing_keeps_every_line_that_a_person_wrote() -> None:
    text = yaml_without_seal()
    written = sealed_text(text, "2026-01-31T12:00:00Z", "1")
    assert written.startswith(text.rstrip())
    held = checked(strict_yaml.parse(written, "k.yaml"))
    before = checked(strict_yaml.parse(text, "k.yaml"))
    assert held.sealed is not None
    assert held.sealed.digests == digests("1")
    assert held.content_sha256 == before.sha256, "the seal is no part of what it seals"
    assert held.sha256 != before.sha256, "and part of what a run refers to"


def test_sealing_again_notes_the_old_seals_and_keeps_what_stands_after_them() -> None:
    once = sealed_text(yaml_without_seal(), "2026-01-31T12:00:00Z", "1")
    first = checked(strict_yaml.parse(once, "k.yaml"))
    twice = sealed_text(once + "# a word at the end\n", "2026-02-01T12:00:00Z", "2")
    thrice = sealed_text(twice, "2026-02-02T12:00:00Z", "3")
    held = checked(strict_yaml.parse(thrice, "k.yaml"))
    assert held.sealed is not None
    assert [old.at for old in held.sealed.previous] == ["2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z"]
    assert held.sealed.previous[0].sha256 == first.sha256
    assert held.content_sha256 == first.content_sha256
    assert thrice.count("# a word at the end") == thrice.count("sealed:") == thrice.count(SAID) == 1


def test_a_seal_that_lines_cannot_replace_is_left_alone() -> None:
    once = sealed_text(yaml_without_seal(), "2026-01-31T12:00:00Z", "1")
    by_hand = once.replace("sealed:\n", '"sealed":\n')
    with pytest.raises(ConfigError):
        sealed_text(by_hand, "2026-02-01T12:00:00Z", "2")


def test_digests_are_text_even_where_they_look_like_numbers() -> None:
    written = sealed_text(yaml_without_seal(), "2026-01-31T12:00:00Z", "1")
    assert yaml.safe_load(written)["sealed"]["digests"]["arms"] == "1" * 64


def yaml_without_seal() -> str:
    return SECOND.read_text(encoding="utf-8").split(SAID)[0]


# --- in plain words -----------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_registered_numbers() -> None:
    """366: as published for the margin of 0.01 at an error of 0.05. The others by the definition of the bets."""
    held = parse_prereg(second())
    assert claim_pairs(held, 0.01) == 366
    assert claim_pairs(held, 0.05) == 72
    assert stop_pairs(held) == 230
    assert go_pairs(held) == 60, "no decision before pairs_min"
    small = replace(held, design=replace(held.design, pairs_max=229))
    assert stop_pairs(small) is None


def test_an_explanation_names_what_would_count_for_and_against() -> None:
    told = "\n".join(explain(parse_prereg(second())))
    for word in ("GO:", "GO_NARROW:", "STOP:", "INCONCLUSIVE:", "INVALID:"):
        assert word in told
    assert "If nothing ever happens: 230 pairs" in told
    assert "did equal harm, a trial would have to repeat 3.85% of its effects" in told
    assert "out of reach" not in told
    assert "Not sealed" in told
    sealed = checked(strict_yaml.parse(sealed_text(yaml_without_seal(), "2026-01-31T12:00:00Z", "a"), "k.yaml"))
    told = "\n".join(explain(sealed))
    assert "Sealed at 2026-01-31T12:00:00Z" in told
    assert all(f"  {name} aaaaaaaaaaaa: " in told for name in Digests.__struct_fields__)


def test_the_first_version_can_be_explained_too() -> None:
    told = "\n".join(explain(PREREG))
    assert "Nothing is registered about calibration" in told
    assert "every run is exploratory" in told
