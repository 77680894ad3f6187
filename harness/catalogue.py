"""The only file that imports the registries of arms, faults and workloads, and those of other people.

Everybody else is handed values. Oracles are in none of these registries: what runs must not know how it is judged.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from arms import ARMS
from faults import FAULTS
from harness.core.errors import ConfigError, did_you_mean
from harness.core.roles import Arm, FaultClass, Workload
from workloads import WORKLOADS

T = TypeVar("T")


class Catalogue(Struct, frozen=True):
    """All that a schedule may name. The key of a foreign entry is its `module:name`."""

    arms: Mapping[str, Arm]
    faults: Mapping[str, type[FaultClass]]
    workloads: Mapping[str, Workload]


def load(foreign: Mapping[str, Iterable[str]] = {}) -> Catalogue:
    """Our registries plus the `module:name` references given by registry (arms, faults, workloads).

    Raises ConfigError for a module that cannot be imported, a name that it lacks, or a value of another kind.
    """
    return Catalogue(
        arms={**ARMS, **{name: arm(name) for name in foreign.get("arms", ())}},
        faults={**FAULTS, **{name: fault(name) for name in foreign.get("faults", ())}},
        workloads={**WORKLOADS, **{name: workload(name) for name in foreign.get("workloads", ())}},
    )


def arm(name: str) -> Arm:
    """The arm of this name or `module:name`."""
    return _find("arm", name, ARMS, lambda value: isinstance(value, Arm), "an Arm")


def check_boot(name: str) -> None:
    """Let the arm say whether it may start. Raises ConfigError when it refuses, or when its check itself fails."""
    check = arm(name).boot_check
    try:
        if check is not None:
            check()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"the boot check of arm {name!r} fails: {type(error).__name__}: {error}") from error


def fault(name: str) -> type[FaultClass]:
    """The fault class of this name or `module:name`."""
    return _find("fault", name, FAULTS, _is_fault, "a class with name, variants and plan()")


def workload(name: str) -> Workload:
    """The workload of this name or `module:name`."""
    return _find("workload", name, WORKLOADS, _is_workload, "an object with name, task() and reply()")


def _is_fault(value: Any) -> bool:
    return isinstance(value, type) and bool(getattr(value, "variants", ())) and callable(getattr(value, "plan", None))


def _is_workload(value: Any) -> bool:
    return all(callable(getattr(value, method, None)) for method in ("task", "reply", "unit_failures"))


def _find(kind: str, name: str, known: Mapping[str, T], is_one: Callable[[Any], bool], what: str) -> T:
    if name in known:
        return known[name]
    if ":" not in name:
        allowed = ", ".join(known) + ", or module:name"
        raise ConfigError(f"unknown {kind} {name!r}", allowed=allowed, hint=did_you_mean(name, known))
    value = imported(kind, name)
    if not is_one(value):
        raise ConfigError(f"{kind} {name!r} is a {type(value).__name__}", allowed=what)
    return value


def imported(kind: str, name: str) -> Any:
    """What stands under `module:name`, whatever it is. kind: what it is wanted for. Raises ConfigError, whatever other
    people's code does when it is imported."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        raise ConfigError(f"{kind} {name!r}: module {module} has no {attribute!r} ({error})") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        absent = isinstance(error, ModuleNotFoundError)
        hint = "it must be installed, or lie in the folder that the command is started from" if absent else ""
        raise ConfigError(f"{kind} {name!r}: cannot import {module} ({reason})", hint=hint) from error
