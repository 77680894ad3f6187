"""Takes secrets out of text before anything is written down.

Why by value and by shape: the key in use is known and must never be found anywhere, but whoever runs this may have
other keys lying about, which a model that looks around can read and repeat.
"""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

MARK = "[redacted]"
KEY_CHARACTERS_MIN = 8
"""A shorter key cannot be told from ordinary text, which would be struck out with it."""

SHAPES = re.compile(
    r"""
      (?<![A-Za-z0-9])(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}        # OpenAI and those who copied its form
    | (?<![A-Za-z0-9])(?:gsk|hf|xai|ghp|gho|ghs|glpat|r8)[_-][A-Za-z0-9_-]{16,}
    | (?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}
    | (?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}
    | (?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}
    | (?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web tokens
    | (?i:(?<=bearer[ ])|(?<=api-key:[ ])|(?<=api_key=))[A-Za-z0-9._~+/=-]{8,}
    """,
    re.VERBOSE,
)


class Redactor:
    """Replaces secrets by MARK. secrets: values that must never be seen, in any of their usual spellings too."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        spelled = {form for secret in secrets if secret for form in _spellings(secret)}
        longest_first = sorted(spelled, key=lambda form: (-len(form), form))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if spelled else None

    def __call__(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(MARK, text)
        return SHAPES.sub(MARK, text)


def _spellings(secret: str) -> set[str]:
    plain = secret.encode()
    return {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], base64.b64encode(plain).decode().rstrip("=")}
