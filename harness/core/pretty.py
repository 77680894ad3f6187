"""JSON as the files of a run hold it that people read, too: indented by two, with a line break at the end.

Why in one place: these bytes are compared and have digests.
"""

from __future__ import annotations

from typing import Any

import msgspec


def pretty(value: Any) -> bytes:
    """The value as indented JSON in UTF-8; keys keep their order."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
