"""A model provider that speaks the OpenAI chat-completions protocol and plays a script that is handed in.

Why our own: tokens must be counted by the side that sells them, at the moment they are spent, so that an answer which
is lost on its way is still paid for, as with a real provider. The server knows nothing of what it plays: the answer
comes from ``reply``, and the call site that repetitions are counted for from ``site_of``.

Source of paths, fields, error bodies and headers: the OpenAI API reference (chat completions, stored completions).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from harness.world.live.completions import (
    CREATED_S,
    LIMITS,
    Completion,
    Declined,
    Json,
    Status,
    as_json,
    chunks,
    completion,
    declined,
    refusal,
    rejection,
    spoken_tokens,
    without_end,
    write,
)

Truth = Callable[[str, str, Json], None]
Reply = Callable[[str, Json, int], Completion]
Forward = Callable[[str, Json, int], Awaitable[Completion | Declined]]


class _Namespace:
    """What the provider knows of one trial; a failure is (status, retry_after_s), without status wrong usage counts."""

    def __init__(self) -> None:
        self.billed: Counter[str] = Counter()
        self.stored: dict[str, Json] = {}
        self.failures: deque[tuple[Status | None, float | None, str]] = deque()


class ProviderServer:
    """The model provider of all trials of one worker.

    POST ``/{ns}/v1/chat/completions`` (``stream`` or not), GET the same path for stored completions (``store: true``;
    oldest first; ``metadata[key]=value``, ``after``, ``limit`` 1 to 100, by default 20) and below it ``/{id}``, GET
    ``/{ns}/v1/models``. Any model name is accepted. A namespace that is not open is a 404.

    ``reply(namespace, request, nth)`` gives the answer, where nth counts from 0 the completions already billed in the
    namespace for ``site_of(request)``. ``think_s(namespace)`` is how long the model thinks, in real seconds (None: not
    at all). Tokens are ceil(UTF-8 bytes / 4): of the values of ``messages`` and ``tools`` exactly as they crossed the
    wire, and of content plus tool calls of the answer.

    ``truth(namespace, kind, data)``: ``billed`` and, when the metadata have a ``ref``, ``effect`` as soon as the answer
    exists, whether or not it arrives; then ``delivered`` when the operating system took all of it or ``undelivered``
    when the client had left; ``rejected`` for an armed error; ``misreported`` for armed wrong usage;
    ``broken`` when ``reply`` raised (a defect of ours, which the client sees as a 500).

    ``forward(namespace, request, prompt tokens)`` takes the place of ``reply`` where the model is elsewhere. Then
    ``billed`` has our count and beside it ``usage``, as it was billed there (None: not told); ``declined`` is an error
    of that model's own.
    """

    def __init__(
        self,
        truth: Truth,
        reply: Reply,
        site_of: Callable[[Json], str],
        models: tuple[str, ...] = ("scripted",),
        think_s: Callable[[str], float] | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._truth, self._reply, self._site_of = truth, reply, site_of
        self._models, self._think_s, self._forward = models, think_s, forward
        self._namespaces: dict[str, _Namespace] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port (a free one for 0). Raises ``OSError`` when the port is taken."""
        app, chat = web.Application(client_max_size=1 << 26), "/{ns}/v1/chat/completions"
        app.add_routes([web.post(chat, self._chat), web.get(chat, self._list), web.get(chat + "/{id}", self._stored)])
        app.router.add_get("/{ns}/v1/models", self._list_models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Drop all clients and namespaces, and free the port; a model that still thinks is not heard."""
        self._namespaces.clear()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def open(self, ns: str) -> None:
        """Start a namespace in which nothing has been said yet."""
        self._namespaces[ns] = _Namespace()

    async def close(self, ns: str) -> list[str]:
        """Forget the namespace; nothing can remain, and what is under way in it is no longer billed."""
        self._namespaces.pop(ns, None)
        return []

    def arm_failure(
        self,
        ns: str,
        status: Status | None = None,
        retry_after_s: float | None = None,
        wrong_usage: bool = False,
        site: str = "",
    ) -> None:
        """Make the namespace's next completion request fail once; several failures strike in the order of arming. site:
        only a request of this site (see ``site_of``), since delegations ask side by side; "" stands for any.

        Either an error ``status`` (nothing is billed; ``retry_after_s`` in real seconds goes into the headers) or
        ``wrong_usage`` (billed as ever, but the answer reports twice the tokens). Raises ``ValueError`` for both or
        neither, ``KeyError`` for a namespace that is not open.
        """
        if (status is None) != wrong_usage:
            raise ValueError("arm either an error status or wrong usage")
        self._namespaces[ns].failures.append((status, retry_after_s, site))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ns, state, body = *self._namespace(request), await request.read()
        try:
            wire = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            asked = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            return refusal(400, str(error))
        if problem := _problem(asked):
            return refusal(400, problem)
        status, retry_after_s, wrong_usage = self._armed(state, self._site_of(asked))
        if status:
            self._truth(ns, "rejected", {"status": status, "site": self._site_of(asked)})
            return rejection(status, retry_after_s)
        if self._think_s:
            await asyncio.sleep(self._think_s(ns))
        prompt_tokens = -(-(len(wire["messages"]) + len(wire.get("tools", b""))) // 4)
        said = await self._forward(ns, asked, prompt_tokens) if self._forward else None
        if self._namespaces.get(ns) is not state:
            return refusal(404, "no such project")
        if isinstance(said, Declined):
            self._truth(ns, "declined", {"status": said.status, "site": self._site_of(asked)})
            return await declined(request, said)
        answer = self._produce(ns, state, asked, prompt_tokens, wrong_usage, said)
        return await self._deliver(request, ns, asked, answer, said or Completion())

    def _armed(self, state: _Namespace, site: str) -> tuple[Status | None, float | None, bool]:
        """The failure that this request meets: error status, seconds to wait, whether its usage is misreported."""
        for failure in state.failures:
            if failure[2] in ("", site):
                state.failures.remove(failure)
                return failure[0], failure[1], failure[0] is None
        return None, None, False

    def _produce(
        self,
        ns: str,
        state: _Namespace,
        asked: Json,
        prompt_tokens: int,
        wrong_usage: bool,
        heard: Completion | None,
    ) -> Json:
        """Let the script answer, unless a model has, and bill it; no other request can come between, since nothing
        here waits."""
        site = self._site_of(asked)
        nth, n = state.billed[site], state.billed.total() + 1
        try:
            said = heard or self._reply(ns, asked, nth)
        except Exception as error:  # a defect of the script must not pass for a failure of the provider
            self._truth(ns, "broken", {"site": site, "error": repr(error)})
            raise
        answer = completion(said.ident or f"cmpl-{ns}-{n}", 0 if said.ident else n, asked["model"], said)
        state.billed[site] += 1
        message, metadata, store = answer["choices"][0]["message"], asked.get("metadata"), bool(asked.get("store"))
        used = {"prompt_tokens": prompt_tokens, "completion_tokens": spoken_tokens(message)}
        reported = {key: value * (2 if wrong_usage else 1) for key, value in (said.usage or used).items()}
        answer["usage"] = {**reported, "total_tokens": sum(reported.values())}
        data = {
            "completion": answer["id"],
            "site": site,
            "model": asked["model"],
            **used,
            "stream": bool(asked.get("stream")),
            "nth": nth,
        }
        if said.drifting:
            data["drifting"] = True
        if heard is not None:
            data["usage"] = heard.usage
        self._truth(ns, "billed", {**data, "metadata": metadata, "store": store})
        if metadata and "ref" in metadata:
            effect = {"boundary": "provider", "operation": "chat", "metadata": metadata}
            self._truth(ns, "effect", {**effect, "receipt": answer["id"], "model": asked["model"]})
        if wrong_usage:
            self._truth(ns, "misreported", {"completion": answer["id"], **reported})
        if store:
            state.stored[answer["id"]] = {**answer, "metadata": metadata or {}}
        return answer

    async def _deliver(
        self, request: web.Request, ns: str, asked: Json, answer: Json, said: Completion
    ) -> web.StreamResponse:
        state, headers = self._namespaces[ns], {**LIMITS, **said.headers, "x-request-id": f"req-{answer['id']}"}
        if asked.get("stream"):
            usage = bool((asked.get("stream_options") or {}).get("include_usage"))
            pieces = [b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks(answer, usage)]
            pieces.append(b"data: [DONE]\n\n")
            headers |= {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        else:
            pieces = [msgspec.json.encode(answer)]
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(pieces[0]))}
        response = web.StreamResponse(headers=headers)
        written = await write(request, response, pieces if said.whole else without_end(pieces), said.whole)
        if self._namespaces.get(ns) is state:
            kind = "delivered" if written == sum(map(len, pieces)) else "undelivered"
            self._truth(ns, kind, {"completion": answer["id"], "bytes": written})
        return response

    def _namespace(self, request: web.Request) -> tuple[str, _Namespace]:
        ns = request.match_info["ns"]
        if ns not in self._namespaces:
            raise web.HTTPNotFound(text=refusal(404, "no such project").text, content_type="application/json")
        return ns, self._namespaces[ns]

    async def _list(self, request: web.Request) -> web.Response:
        query, (_, state) = request.query, self._namespace(request)
        wanted = {key[9:-1]: value for key, value in query.items() if key.startswith("metadata[") and key[-1] == "]"}
        found = [one for one in state.stored.values() if wanted.items() <= one["metadata"].items()]
        ids, limit = [one["id"] for one in found], query.get("limit", "20")
        if not limit.isdecimal() or not 1 <= int(limit) <= 100:
            return refusal(400, "'limit' must be from 1 to 100")
        if query.get("after") in ids:
            found = found[ids.index(query["after"]) + 1 :]
        page = found[: int(limit)]
        body = {"object": "list", "data": page, "has_more": len(found) > len(page)}
        return as_json(
            {**body, "first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        )

    async def _stored(self, request: web.Request) -> web.Response:
        found = self._namespace(request)[1].stored.get(request.match_info["id"])
        return as_json(found) if found else refusal(404, "no such completion")

    async def _list_models(self, request: web.Request) -> web.Response:
        self._namespace(request)
        about = {"object": "model", "created": CREATED_S, "owned_by": "agentmesh"}
        return as_json({"object": "list", "data": [{"id": name, **about} for name in self._models]})


def _problem(asked: Any) -> str | None:
    """Why a request is refused before anybody thinks about it; None when it is well-formed."""
    if not isinstance(asked.get("model"), str) or not isinstance(asked.get("messages"), list):
        return "'model' must be a string and 'messages' an array"
    metadata = asked.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        return "'metadata' must map strings to strings"
    return None
