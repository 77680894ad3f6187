"""What a run has spent at a real provider, counted over all its processes and starts, against its caps.

Why a file of its own: trials run in several processes and a run can be killed and continued, and money that was spent
stays spent. A request is noted with its estimate before it is made, and settled when the answer is there; one that
nobody settled counts as estimated, since it was most likely billed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError

PER = 1_000_000
"""Prices are for so many tokens, as providers quote them."""

DECLINED = "declined"


class Caps(Struct, frozen=True, kw_only=True):
    """What a whole run may spend. tokens: prompt and completion together. cost: in the unit of the prices, which are
    per million tokens. 0 and None: no cap."""

    tokens: int = 0
    cost: float | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / PER


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """ask: id of the request. settled: whether the tokens are what came of it, or an estimate before it. by: who
    counted them, the provider (`usage`) or we (`count`); `declined`: it was not carried out, with this status, 0 when
    no answer came at all. cap: which one forbade it."""

    ask: str
    settled: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    by: str = ""
    status: int = 0
    cap: str = ""


class Spent(Struct, kw_only=True):
    """What came of all requests so far. open: those that nobody settled, with their estimated tokens in the sums.
    stopped_by: the cap that forbade a request, if any did."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    without_usage: int = 0
    open: int = 0
    cost: float = 0.0
    declined: dict[str, int] = {}
    stopped_by: str = ""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def reached(self, caps: Caps, prompt_tokens: int = 0) -> str:
        """Which cap leaves no room for a further request of so many tokens; an empty string when none does."""
        if caps.tokens and self.tokens + prompt_tokens >= caps.tokens:
            return f"{caps.tokens} tokens"
        if caps.cost is not None and self.cost + caps.price(prompt_tokens, 0) >= caps.cost:
            return f"a cost of {caps.cost:g}"
        return ""


class Ledger:
    """The file, followed as other processes append to it. Raises ConfigError when it is damaged."""

    def __init__(self, path: Path, caps: Caps) -> None:
        self._path, self._caps, self._read, self._rest = path, caps, 0, b""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lines: dict[str, Line] = {}

    def total(self) -> Spent:
        """All that is known to be spent by now, by whatever process."""
        self._catch_up()
        sums = Spent()
        for line in self._lines.values():
            if line.cap:
                sums.stopped_by = line.cap
                continue
            sums.prompt_tokens += line.prompt_tokens
            sums.completion_tokens += line.completion_tokens
            sums.open += not line.settled
            if line.by == DECLINED:
                status = str(line.status or "no answer")
                sums.declined[status] = sums.declined.get(status, 0) + 1
            elif line.settled:
                sums.requests += 1
                sums.without_usage += line.by == "count"
        sums.cost = round(self._caps.price(sums.prompt_tokens, sums.completion_tokens), 6)
        return sums

    def begin(self, prompt_tokens: int) -> tuple[str, str]:
        """Note a request of about so many tokens: its id, and the cap that forbids it (empty: go ahead)."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # between looking and noting, no other process may do the same
        try:
            spent = self.total()
            if cap := spent.reached(self._caps, prompt_tokens):
                if not spent.stopped_by:
                    self._add(Line(ask="cap", cap=cap))
                return "", cap
            ask = os.urandom(8).hex()
            self._add(Line(ask=ask, prompt_tokens=prompt_tokens))
            return ask, ""
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def settle(self, ask: str, prompt_tokens: int, completion_tokens: int, by: str) -> None:
        """What the request came to."""
        said = Line(ask=ask, settled=True, by=by, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        self._add(said)

    def decline(self, ask: str, status: int) -> None:
        """It was not carried out, and cost nothing. status: what the endpoint said, 0 for nothing at all."""
        self._add(Line(ask=ask, settled=True, by=DECLINED, status=status))

    def close(self) -> None:
        os.close(self._fd)

    def _add(self, line: Line) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")

    def _catch_up(self) -> None:
        size = os.fstat(self._fd).st_size
        data = self._rest + os.pread(self._fd, size - self._read, self._read)
        self._read = size
        *lines, self._rest = data.split(b"\n")
        try:
            for raw in lines:
                line = msgspec.json.decode(raw, type=Line)
                self._lines[line.ask] = line
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError("a line of what was spent is damaged", where=str(self._path)) from error
