"""The registration: read strictly, and its digest ignores layout."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from synthetic import PREREG, REGISTRATION

from harness.core import strict_yaml
from harness.core.errors import ConfigError
from harness.report.prereg import parse_prereg


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
