"""Which kind of part a name stands for, and the questions that are put to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from harness import catalogue
from harness.conformance import arms, faults, metrics, workloads
from harness.conformance.form import Answer
from harness.core.errors import ConfigError
from harness.core.records import Metric
from harness.core.roles import Arm

Kind = Literal["arm", "fault", "workload", "metric"]

QUESTIONS: dict[Kind, Callable[[str], Iterator[Answer]]] = {
    "arm": arms.questions,
    "fault": faults.questions,
    "workload": workloads.questions,
    "metric": metrics.questions,
}


def kind_of(name: str) -> Kind:
    """What `name`, of a registry or `module:name`, is. Raises ConfigError when it is nothing that can be checked."""
    known = catalogue.load()
    held: dict[Kind, Any] = {
        "arm": known.arms,
        "fault": known.faults,
        "workload": known.workloads,
        "metric": metrics.METRICS,
    }
    for kind, entries in held.items():
        if name in entries:
            return kind
    if ":" not in name:
        allowed = "a name of `agentmesh list arms|faults|workloads|metrics`, or module:name"
        raise ConfigError(f"nothing is called {name!r}", allowed=allowed)
    return _of(catalogue.imported("part", name), name)


def _of(value: Any, name: str) -> Kind:
    if isinstance(value, Arm):
        return "arm"
    if isinstance(value, Metric):
        return "metric"
    if isinstance(value, type) and hasattr(value, "plan"):
        return "fault"
    if hasattr(value, "task") and hasattr(value, "reply"):
        return "workload"
    allowed = "an Arm, a Metric, a class of faults (with plan()), or a workload (with task() and reply())"
    raise ConfigError(f"{name!r} is a {type(value).__name__}", allowed=allowed)


def answers(name: str) -> Iterator[Answer]:
    """All answers about a part, in an order in which the first that does not hold explains the most. Raises
    ConfigError for a name that stands for nothing."""
    return QUESTIONS[kind_of(name)](name)
