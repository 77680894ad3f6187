"""A sabotaged arm among real processes: what it only pretends is missed at once."""

from pathlib import Path

import pytest

from tests.negative.test_schedules import evaluated

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-trials")]


def test_with_real_installs_an_arm_that_suppresses_them_gets_nothing_done(tmp_path: Path) -> None:
    live = evaluated("suppress_all", tmp_path / "run", "--world", "live", "--pairs", "1")
    assert live.mean("task_success", live.arm) == 0.0
    assert live.mean("task_success", "naive") == 1.0
    assert live.duplicated(live.arm) == 0
    assert live.mean("lost_incidence", live.arm) == 1.0
