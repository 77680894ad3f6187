"""What answers in place of the script: a model at an endpoint, or a cassette on which its answers are recorded.

Why both behind one object: a replay must take the very same way as the recording, from the bytes of the answer to what
the agent is told, or it would not be the same run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from harness.world.live import endpoint
from harness.world.live.cassette import Entry, Json, Recorder, Tape, canonical, key_of, site_of
from harness.world.live.endpoint import Said
from harness.world.live.provider import Completion, Declined, ToolCallSpec
from harness.world.live.redact import Redactor
from harness.world.live.spending import Caps, Ledger

Mode = Literal["ask", "record", "replay"]


class ModelSource(Struct, frozen=True, kw_only=True):
    """Whom to ask. url: base URL, which may hold a query that nobody is to see; host: what of it may be told.
    key_variable: the environment variable that the key was read from. cassette: to record on or to replay from.
    spending: file of what the run spends. The key is in no text that is made of this."""

    mode: Mode
    model: str
    host: str
    url: str = ""
    key: str = ""
    key_variable: str = ""
    cassette: str = ""
    spending: str = ""
    caps: Caps = Caps()

    def __repr__(self) -> str:
        return f"ModelSource(mode={self.mode!r}, model={self.model!r}, host={self.host!r})"


class SpendCapReached(Exception):
    """The run may spend nothing more; the message names the cap."""


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

    def close(self) -> None:
        for held in (self._recorder, self._ledger):
            if held is not None:
                held.close()

    async def answer(self, trial: str, asked: Counter[str], request: Json, prompt_tokens: int) -> Completion | Declined:
        """What the model says to a request of a trial. asked: how often that trial made each request, counted here.
        prompt_tokens: our own count. Raises SpendCapReached, and NotOnTape in a replay."""
        told = {"metadata": request["metadata"]} if request.get("metadata") else {}
        going = endpoint.outgoing(request, self._source.model)
        known = canonical({**going, **told}, self._redact)
        key = key_of(known)
        nth = asked[key]
        asked[key] += 1
        if self._tape is not None:
            entry = self._tape.find(trial, known, nth)
        else:
            entry = await self._asked(going, prompt_tokens, Entry(
                trial=trial, key=key, nth=nth, site=site_of(known), request=known,
                status=0, headers={}, body="", ended="lost",
            ))  # fmt: skip
        return heard(entry)

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
        ident=f"cmpl-{entry.key[:24]}-{entry.nth}",
        usage=said.usage,
        whole=said.whole,
        headers=passed_on,
    )
