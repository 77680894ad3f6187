"""Policies of the control plane from their files: unknown keys, missing keys and wrong types are refused.

Why strict: a misspelt limit that is silently ignored is a limit that does not hold.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.core import strict_yaml
from harness.core.errors import ConfigError

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T:
    """The policy of this kind in a YAML file. Raises ConfigError with file and place for whatever does not fit."""
    try:
        return msgspec.convert(strict_yaml.read(path).value, kind)
    except ConfigError as error:
        where = error.where if error.where.startswith(str(path)) else f"{path}: {error.where}"
        raise ConfigError(error.problem, where=where, allowed=error.allowed, hint=error.hint) from error
    except msgspec.ValidationError as error:
        fields = ", ".join(getattr(kind, "__struct_fields__", ()))
        raise ConfigError(f"the policy does not fit: {error}", where=str(path), allowed=fields) from error


def pattern(text: str, path: Path, place: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression of a policy, compiled. place: where it stands in the file. Raises ConfigError when it is
    none."""
    try:
        return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        problem = f"{place} is no regular expression: {error}"
        raise ConfigError(problem, where=str(path), allowed="a pattern of Python's re") from error
