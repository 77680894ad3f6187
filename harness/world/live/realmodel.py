"""What answers in place of the script: a model at an endpoint, or a cassette on which its answers are recorded.

Why both behind one object: a replay must take the very same way as the recording, from the bytes of the answer to what
the agent is told, or it would not be the same run.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from harness.world.live import endpoint
from harness.world.live.cassette import (
    Entry,
    Json,
    NoAnswer,
    NotOnTape,
    Recorder,
    Tape,
    canonical,
    ident_of,
    key_of,
    site_of,
)
from harness.world.live.completions import Completion, Declined, ToolCallSpec
from harness.world.live.endpoint import Said
from harness.world.live.played import BEGUN, Played
from harness.world.live.redact import Redactor
from harness.world.live.spending import Caps, Ledger

Mode = Literal["ask", "record", "replay"]

REFUSED = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 410)
"""Statuses by which an endpoint refuses whoever asks, not what is asked: the next request fares no better."""

REFUSALS_MAX = 10
"""So many answers that an endpoint may fail to give to one trial, one after the other, before it is held to be broken;
fewer are an arm's to deal with."""


PATIENCE_NOMINAL_S = 5.0
"""So long, in nominal seconds, an answer that is ready in a replay waits in all for those that were given before it
when it was recorded. Short of what a policy could take for a pause of the agent's own."""

END_PATIENCE_S = 4.0
"""So long, in real seconds, a replay waits for the end of a trial before it says that an answer is missing: one that
was stopped by a limit had asked nothing more when it was recorded."""


class ModelSource(Struct, frozen=True, kw_only=True):
    """Whom to ask. url: base URL, which may hold a query that nobody is to see; host: what of it may be told.
    key_variable: the environment variable that the key was read from. cassette: to record on or to replay from.
    spending: file of what the run spends. asked: file in which a replay notes what it asked for ("": nowhere).
    time_scale: real seconds per nominal second, in a replay. The key is in no text that is made of this."""

    mode: Mode
    model: str
    host: str
    url: str = ""
    key: str = ""
    key_variable: str = ""
    cassette: str = ""
    spending: str = ""
    asked: str = ""
    time_scale: float = 1.0
    caps: Caps = Caps()

    def __repr__(self) -> str:
        return f"ModelSource(mode={self.mode!r}, model={self.model!r}, host={self.host!r})"


class SpendCapReached(Exception):
    """The run may spend nothing more; the message names the cap."""


class EndpointBroken(NoAnswer):
    """The endpoint does not answer this trial, whatever it is asked; the message says what it said last."""


class RealModel:
    """Answers the requests of all trials of one process. Raises ConfigError when a file cannot be used."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        query = source.url.partition("?")[2]
        secrets = (source.key, *(part.partition("=")[2] for part in query.split("&")))
        self._redact = Redactor(tuple(one for one in secrets if len(one) >= 8))
        self._tape = Tape(Path(source.cassette)) if source.mode == "replay" else None
        self._recorder = Recorder(Path(source.cassette)) if source.mode == "record" else None
        self._ledger = Ledger(Path(source.spending), source.caps) if source.mode != "replay" else None
        self._notes = Played(Path(source.asked)) if source.asked else None
        self._refusals = Counter[str]()
        self._orders: dict[str, _Order] = {}

    def close(self) -> None:
        for held in (self._recorder, self._ledger, self._notes):
            if held is not None:
                held.close()

    async def answer(self, trial: str, asked: Counter[str], request: Json, prompt_tokens: int) -> Completion | Declined:
        """What the model says to a request of a trial. asked: how often that trial made each request, counted here.
        prompt_tokens: our own count. Raises SpendCapReached, NotOnTape in a replay, and EndpointBroken."""
        told = {"metadata": request["metadata"]} if request.get("metadata") else {}
        going = endpoint.outgoing(request, self._source.model)
        known = canonical({**going, **told}, self._redact)
        key = key_of(known)
        if not asked:  # the trial begins, perhaps once more
            self._orders.pop(trial, None)
            self._refusals.pop(trial, None)
            self._mark(trial, BEGUN)
        nth = asked[key]
        asked[key] += 1
        if self._tape is not None:
            entry = await self._played(self._tape, trial, known, nth)
        else:
            entry = await self._asked(going, prompt_tokens, Entry(
                trial=trial, key=key, nth=nth, site=site_of(known), request=known,
                status=0, headers={}, body="", ended="lost",
            ))  # fmt: skip
        return self._borne(trial, heard(entry))

    def _borne(self, trial: str, said: Completion | Declined) -> Completion | Declined:
        """What was said, unless it is one refusal too many. A conversation that is too long, or a request that is no
        good, is answered by 400 and the like: those are an outcome of the trial, as often as they come."""
        if isinstance(said, Completion) or (400 <= said.status < 500 and said.status not in (*REFUSED, 408, 429)):
            self._refusals[trial] = 0
            return said
        self._refusals[trial] += 1
        host, spent = self._source.host, '"insufficient_quota"' in said.body
        if said.status in REFUSED or spent:
            hint = ": is the key right?" if said.status in (401, 403) else ": its quota is used up" if spent else ""
            raise EndpointBroken(f"{host} refuses all requests with status {said.status}{hint}")
        if self._refusals[trial] >= REFUSALS_MAX:
            last = f"status {said.status}" if said.status else "a lost connection"
            raise EndpointBroken(f"{host} failed {REFUSALS_MAX} times in a row, last with {last}")
        return said

    async def _played(self, tape: Tape, trial: str, known: Json, nth: int) -> Entry:
        """The recorded answer, after as long as it took when it was recorded, and when its turn has come."""
        asked_s = asyncio.get_running_loop().time()
        if trial not in self._orders:
            self._orders[trial] = _Order(tape.order(trial))
        order = self._orders[trial]
        try:
            entry = tape.find(trial, known, nth)
        except NotOnTape:
            await order.quiet(END_PATIENCE_S)
            raise
        place = tape.place(entry)
        self._mark(trial, place)
        await order.turn(place, asked_s + entry.took_ms / 1000, PATIENCE_NOMINAL_S * self._source.time_scale)
        return entry

    def _mark(self, trial: str, place: int) -> None:
        if self._notes is not None:
            self._notes.mark(trial, place)

    async def _asked(self, going: Json, prompt_tokens: int, blank: Entry) -> Entry:
        """Ask the endpoint; what came back is written down before anybody is told."""
        assert self._ledger is not None
        ask, cap = self._ledger.begin(prompt_tokens)
        if cap:
            raise SpendCapReached(cap)
        raw = await endpoint.ask(self._source.url, self._source.key, going)
        entry = self._clean(blank, raw)
        said = heard(entry)
        if entry.ended == "lost":
            pass  # nobody knows whether it was billed, so it stays noted as estimated
        elif isinstance(said, Declined):
            self._ledger.decline(ask, entry.status)
        elif said.usage is not None:
            self._ledger.settle(ask, said.usage["prompt_tokens"], said.usage["completion_tokens"], "usage")
        else:
            self._ledger.settle(ask, prompt_tokens, said.tokens(), "count")
        if self._recorder is not None:
            self._recorder.add(entry)
        return entry

    def _clean(self, blank: Entry, raw: endpoint.Raw) -> Entry:
        """The answer without secrets: in its bytes, and in what its pieces say together."""
        headers = {name: self._redact(value) for name, value in raw.headers.items()}
        entry = replace(
            blank, status=raw.status, headers=headers, body=self._redact(raw.body), ended=raw.ended, took_ms=raw.took_ms
        )
        if raw.status != 200:
            return entry
        said = endpoint.parse(entry.body, entry.ended, bool(entry.request.get("stream")))
        clean = self._without_secrets(said)
        return entry if clean == said else replace(entry, body=endpoint.in_one_piece(clean), rewritten=True)

    def _without_secrets(self, said: Said) -> Said:
        calls = tuple((self._redact(i), self._redact(n), self._redact(a)) for i, n, a in said.tool_calls)
        content = None if said.content is None else self._redact(said.content)
        return replace(said, content=content, tool_calls=calls)


class _Order:
    """Lets the answers of one trial out when they are ready, in the order in which they were recorded, since its
    delegations ask side by side and share limits. Who would wait for a request that nobody makes goes on after a
    while."""

    def __init__(self, places: tuple[int, ...]) -> None:
        self._places, self._next, self._moved = places, 0, asyncio.Event()
        self._under_way = 0

    async def turn(self, place: int, ready_s: float, patience_s: float) -> None:
        """Returns at `ready_s` of the loop's time, and when everything before `place` was let out, for which it waits
        so long and no longer, whatever moves meanwhile."""
        position = bisect_left(self._places, place)
        self._under_way += 1
        try:
            await asyncio.sleep(max(0.0, ready_s - asyncio.get_running_loop().time()))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    while self._next < position:
                        await self._moved.wait()
        finally:
            self._under_way -= 1
        self._next = max(self._next, position + 1)
        self._moved.set()
        self._moved = asyncio.Event()

    async def quiet(self, patience_s: float) -> None:
        """Returns when nothing was let out for so long, and nothing is about to be."""
        while await self._moves(patience_s) or self._under_way:
            pass

    async def _moves(self, within_s: float) -> bool:
        try:
            await asyncio.wait_for(self._moved.wait(), within_s)
        except TimeoutError:
            return False
        return True


def heard(entry: Entry) -> Completion | Declined:
    """What an entry means to whoever asked: a pure function, so that a replay cannot differ from its recording."""
    passed_on = {name: value for name, value in entry.headers.items() if name != "content-type"}
    if entry.status != 200:
        status = 502 if entry.ended == "unreachable" else entry.status
        return Declined(status=status, headers=passed_on, body=entry.body)
    stream = bool(entry.request.get("stream")) or entry.rewritten
    said = endpoint.parse(entry.body, entry.ended, stream)
    return Completion(
        content=said.content,
        tool_calls=tuple(ToolCallSpec(name, arguments, ident) for ident, name, arguments in said.tool_calls),
        finish_reason=said.finish_reason,
        ident=ident_of(entry),
        usage=said.usage,
        whole=said.whole,
        headers=passed_on,
    )
