"""How a scripted agent words its work: the same effects, spelt anew on every completion.

Levels are cumulative. L0 identical bytes · L1 key order, white space, number spelling · L2 volatile fields, a good
third of them undeclared · L3 order of effects, extra reads · L4 other words, SQL shapes · L5 one batch for several.
Draws depend on `(seed, stream, site, nth completion billed)`: a retried attempt never repeats its bytes from L1 on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from harness.core import rng

T = TypeVar("T")


class Voice:
    """The composition of one completion: draws by name under a fixed prefix, gated by level."""

    def __init__(self, seed: int, level: int, prefix: Sequence[object]) -> None:
        self.seed, self.level, self._prefix = seed, level, tuple(prefix)

    def pick(self, options: Sequence[T], *name: object, level: int = 1) -> T:
        return rng.choice(self.seed, options, "voice", *self._prefix, *name) if self.level >= level else options[0]

    def draw(self, *name: object) -> float:
        """A uniform number in [0, 1), at every level: what the agent does, and not how it words it."""
        return rng.draw(self.seed, "deed", *self._prefix, *name)

    def shuffle(self, items: Sequence[T], *name: object, level: int) -> list[T]:
        return rng.shuffled(self.seed, items, "voice", *self._prefix, *name) if self.level >= level else list(items)

    def fresh(self, placeholder: str, *name: object) -> str:
        """A volatile value: filled in at execution from L2 on, fixed by the seed below."""
        return placeholder if self.level >= 2 else rng.token(self.seed, "fixed", placeholder, *name)

    def spell(self, value: Any, *name: object) -> Any:
        """Key order and number spelling of a JSON value, at L1 and above."""
        if isinstance(value, dict):
            keys = self.shuffle(list(value), *name, "keys", level=1)
            return {key: self.spell(value[key], *name, key) for key in keys}
        if isinstance(value, list):
            return [self.spell(item, *name, i) for i, item in enumerate(value)]
        if isinstance(value, int) and not isinstance(value, bool):
            return self.pick((value, float(value)), *name, "number")
        return value

    def text(self, value: Any, *name: object) -> str:
        """JSON text in one of several layouts."""
        return json.dumps(value, indent=self.pick((1, 2, None), *name, "indent"))


def event(voice: Voice, kind: str, subject: str, data: dict[str, Any], *name: object) -> dict[str, Any]:
    """A CloudEvents 1.0 event. Volatile: id, time, traceparent; undeclared so: data.request_id, data.emitted_ms."""
    notes = ("for the customer", "on behalf of the customer", "as the customer asked")
    body = {
        **data,
        "note": voice.pick(notes, *name, "note", level=4),
        "request_id": voice.fresh("$uuid", *name),
        "emitted_ms": "$ms" if voice.level >= 2 else 0,
    }
    return {
        "specversion": "1.0",
        "id": voice.fresh("$uuid", *name, "id"),
        "source": "/" + kind.split(".")[0],
        "type": kind,
        "subject": subject,
        "time": voice.fresh("$now", *name),
        "traceparent": voice.fresh("$trace", *name),
        "data": voice.spell(body, *name),
    }


def insert(voice: Voice, service: str, table: str, row: dict[str, Any]) -> dict[str, Any]:
    """An INSERT step; L1 changes white space, L4 column order, case and whether values are literals."""
    row = {**row, "created_at": voice.fresh("$now", table), "request_id": voice.fresh("$uuid", table)}
    columns = voice.shuffle(list(row), table, "columns", level=4)
    verb = voice.pick(("INSERT INTO {} ({}) VALUES ({})", "insert into {}({}) values ({})"), table, "verb", level=4)
    literal = voice.pick((False, True), table, "literal", level=4)
    inline = [c for c in columns if literal and not str(row[c]).startswith("$")]
    marks = [_literal(row[c]) if c in inline else "?" for c in columns]
    params = [row[c] for c in columns if c not in inline]
    comma = voice.pick((", ", ",", " , ", ",  "), table, "comma", level=1)
    sql = verb.format(table, comma.join(columns), comma.join(marks))
    return {"do": "insert", "service": service, "sql": sql, "params": params}


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def completion_request(voice: Voice, ref: str, subject: str) -> dict[str, Any]:
    """A model call that a generated service makes; `metadata.ref` is its business key."""
    asks = ("Describe {} in one sentence.", "In one sentence, describe {}.", "One sentence about {}, please.")
    prompt = voice.pick(asks, ref, "ask", level=4).format(subject)
    return voice.spell(
        {
            "model": "small",
            "store": True,
            "messages": [{"role": "user", "content": prompt}],
            "metadata": {"ref": ref, "request_id": voice.fresh("$uuid", ref)},
        },
        ref,
    )
