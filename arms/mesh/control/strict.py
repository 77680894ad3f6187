"""Policies of the control plane from their files: unknown keys, missing keys and wrong types are refused.

Why strict: a misspelt limit that is silently ignored is a limit that does not hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from harness.core.errors import ConfigError

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T:
    """The policy of this kind in a YAML file. Raises ConfigError with file and place for whatever does not fit."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise ConfigError(f"cannot read the policy: {error.strerror}", where=str(path)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not valid YAML: {' '.join(str(error).split())}", where=str(path)) from error
    except msgspec.ValidationError as error:
        fields = ", ".join(getattr(kind, "__struct_fields__", ()))
        raise ConfigError(f"the policy does not fit: {error}", where=str(path), allowed=fields) from error
