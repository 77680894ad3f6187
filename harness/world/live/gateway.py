"""The effect gateway of an orchestrator: what checks and hooks do to the outside is caught here and crosses the seam.

Why: the processes under test use ordinary clients and know nothing of delegations, so the addresses that they are
given are the only place where an effect can be seen, named after the tool call that caused it, and held back. Writes
become `EffectCall`s and are left to whoever `cross` stands for; reads are passed on. It lives and dies with its
orchestrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from yarl import URL

from harness.core.types import EffectCall, Err, Outcome, ToolCall
from harness.world.effects import effect_of
from harness.world.live import gitwire, native
from harness.world.live.gateway_resp import RespClient
from harness.world.live.upstream import NETWORK_ERRORS, Upstreams, network_error, session

HOST = "127.0.0.1"

CLIENT_TIMEOUT_S = 86_400
"""For clients that would otherwise give up and send again by themselves: redis-py does so after 5 s, ten times."""

READABLE = {"registry": ("simple/", "files/"), "provider": ("v1/",), "repository": ("",)}
"""What is passed on as a read, by the beginning of its path. The database is read by POST alone, see `native.is_read`:
its audit trail is not for those who are audited."""

READ_BY_POST = {"database": "/execute", "repository": "/git-upload-pack"}
"""What is a read although it is posted, by the end of its path, where it was not found to be an effect."""

Cross = Callable[[EffectCall], Awaitable[Outcome]]


class Ticket:
    """The right of one tool call's processes to use the gateway. `env` is what they need to know for that."""

    def __init__(
        self, token: str, tool_call: ToolCall, origin: str, on_effect: Callable[[], None], env: dict[str, str]
    ):
        self.token, self.tool_call, self.origin, self.on_effect, self.env = token, tool_call, origin, on_effect, env
        self.effects = 0
        self.crossing: set[asyncio.Task[Outcome]] = set()
        self.failure: BaseException | None = None


class Gateway:
    """One gateway per orchestrator process.

    cross: takes an effect through the arm's layers to the world, and returns the outcome. new_id: unique ids, for calls
    and tickets. Use: `start`, then `open_ticket` and `close_ticket` around each tool call, and `stop`.
    """

    def __init__(self, upstreams: Upstreams, ns: str, cross: Cross, new_id: Callable[[], str]) -> None:
        self.upstreams, self.ns = upstreams, ns
        self._cross, self._new_id = cross, new_id
        self._tickets: dict[str, Ticket] = {}
        self._enclosed: dict[str, bytes] = {}
        self._clients: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen on two free loopback ports, one for RESP and one for HTTP."""
        self._reader = session()
        self._http = web.Server(self._serve_http, access_log=None)
        loop = asyncio.get_running_loop()
        self._servers = [
            await asyncio.start_server(self._serve_resp, HOST, 0),
            await loop.create_server(self._http, HOST, 0),
        ]
        self._resp_port, self._http_port = (server.sockets[0].getsockname()[1] for server in self._servers)

    async def stop(self) -> None:
        """Cancel what is under way, drop all clients and free the ports. Raises what `cross` raised meanwhile."""
        for server in self._servers:
            server.close()
        tickets = list(self._tickets.values())
        for ticket in tickets:
            await self._settle(ticket, cancel=True)
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._http.shutdown(timeout=0.01)
        await self._reader.close()
        for server in self._servers:
            await server.wait_closed()
        for ticket in tickets:
            self._raise_failure(ticket)

    def open_ticket(self, tool_call: ToolCall, origin: str, on_effect: Callable[[], None] = lambda: None) -> Ticket:
        """Admit the processes of a tool call. origin: its check or hook. on_effect: called when an effect arrives."""
        token = self._new_id()
        web_base = f"http://{HOST}:{self._http_port}/t/{token}"
        env = {
            "TRANSPORT_URL": f"redis://:{token}@{HOST}:{self._resp_port}?protocol=2&socket_timeout={CLIENT_TIMEOUT_S}",
            "DATABASE_URL": f"{web_base}/database",
            "REGISTRY_URL": f"{web_base}/registry/simple/",
            "PROVIDER_URL": f"{web_base}/provider/v1",
            "REPOSITORY_URL": f"{web_base}/repository/origin",
            "HOOK_URL": f"{web_base}/hook",
        }
        self._tickets[token] = Ticket(token, tool_call, origin, on_effect, env)
        return self._tickets[token]

    async def close_ticket(self, ticket: Ticket, cancel: bool = False) -> None:
        """Refuse all further requests of a ticket, then wait until its effects under way have their outcome.

        cancel: they are cancelled instead, and nobody knows whether they happened. Raises what `cross` raised for this
        ticket, which is a fault of ours or of an arm and never of the network.
        """
        await self._settle(ticket, cancel)
        self._raise_failure(ticket)

    async def _settle(self, ticket: Ticket, cancel: bool) -> None:
        self._tickets.pop(ticket.token, None)
        if cancel:
            for task in ticket.crossing:
                task.cancel()
        while ticket.crossing:
            await asyncio.wait(ticket.crossing)

    def _raise_failure(self, ticket: Ticket) -> None:
        failure, ticket.failure = ticket.failure, None
        if failure is not None:
            raise failure

    def ticket(self, token: str) -> Ticket | None:
        """The open ticket with this token."""
        return self._tickets.get(token)

    def enclosed(self, call: EffectCall) -> bytes:
        """What came with an effect beside its payload, as long as it is under way: the pack of a push."""
        return self._enclosed.get(call.call_id, b"")

    async def effect(self, ticket: Ticket, request: native.Request, enclosed: bytes = b"") -> Outcome:
        """Take one effect across the seam. It goes on when the client that asked for it is gone."""
        call = self._call(ticket, request)
        if enclosed:
            self._enclosed[call.call_id] = enclosed
        ticket.on_effect()
        task = asyncio.ensure_future(self._cross(call))
        ticket.crossing.add(task)
        task.add_done_callback(lambda done: self._crossed(ticket, call.call_id, done))
        await asyncio.wait([task])
        if task.cancelled():
            return Err(code="cancelled", definite=False)
        if task.exception() is not None:
            return Err(code="internal", definite=False)
        return task.result()

    def _crossed(self, ticket: Ticket, call_id: str, task: asyncio.Task[Outcome]) -> None:
        ticket.crossing.discard(task)
        self._enclosed.pop(call_id, None)
        if not task.cancelled() and ticket.failure is None:
            ticket.failure = task.exception()

    def _call(self, ticket: Ticket, request: native.Request) -> EffectCall:
        ordinal, ticket.effects = ticket.effects, ticket.effects + 1
        effect = (request.boundary, request.operation, request.target, request.payload)
        return effect_of(ticket.tool_call, ordinal, ticket.origin, effect, self._new_id())

    def _serve_resp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine: Python 3.11 would report the cancelled task of one as an error."""
        task = asyncio.ensure_future(RespClient(self, reader, writer).serve())
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve_http(self, request: web.BaseRequest) -> web.StreamResponse:
        """`/t/<ticket>/<boundary>/<path>`"""
        _, _, token, boundary, path = (request.rel_url.raw_path.split("/", 4) + [""] * 5)[:5]
        ticket = self.ticket(token)
        if ticket is None:
            return _http(native.HttpReply(403, b'{"error":{"code":"forbidden","message":"no access"}}'))
        body = await request.content.read()  # whole, however large
        try:
            if (boundary, request.method) == ("repository", "POST") and path.endswith("/git-receive-pack"):
                return _http(await self._push(ticket, path.partition("/")[0], body))
            asked = native.http_request(request.method, boundary, path, body, ticket.origin)
        except ValueError as error:
            return _http(native.failure(400, "invalid-request", str(error)))
        if asked is not None:
            return _http(native.http_reply(asked, await self.effect(ticket, asked)))
        reading = request.method in ("GET", "HEAD") and path.startswith(READABLE.get(boundary, ("\0",)))
        if reading or (request.method == "POST" and path.endswith(READ_BY_POST.get(boundary, "\0"))):
            return await self._pass_on(request, boundary, path, body)
        return _http(native.failure(404, "not-found", "no such resource"))

    async def _push(self, ticket: Ticket, remote: str, body: bytes) -> native.HttpReply:
        """Each reference that a push would move is an effect of its own. Raises ValueError for what is no push."""
        asked = gitwire.push_request(body)
        said = [await self._said(remote, command.new, asked.pack) for command in asked.commands]
        requests = [native.push(remote, *one) for one in zip(asked.commands, said, strict=True)]
        return native.push_reply(asked, [await self.effect(ticket, one, asked.pack) for one in requests])

    async def _said(self, remote: str, name: str, pack: bytes) -> gitwire.Told:
        """What a commit or tag says of itself. One that did not come with its push is there already, and the remote is
        asked; nothing is known where that fails."""
        content = gitwire.find_object(pack, name)
        if content is not None:
            return gitwire.told(content)
        url = f"{self.upstreams.base('repository')}/{remote}/objects/{name}"
        try:
            async with self._reader.get(url) as answer:
                return gitwire.told(await answer.read() if answer.status == 200 else b"")
        except (aiohttp.InvalidURL, *NETWORK_ERRORS):
            return gitwire.told(b"")

    async def _pass_on(self, request: web.BaseRequest, boundary: str, path: str, body: bytes) -> web.Response:
        """A read: the answer of the real service, as it is."""
        url = URL(f"{self.upstreams.base(boundary)}/{path}", encoded=True).with_query(request.rel_url.query)
        kept = {name: value for name, value in request.headers.items() if name in ("Accept", "Content-Type")}
        try:
            async with self._reader.request(request.method, url, data=body or None, headers=kept) as answer:
                raw = await answer.read()
        except (aiohttp.InvalidURL, *NETWORK_ERRORS) as error:
            outcome = network_error(error)
            return _http(native.http_reply(native.Request(boundary, "read", path, {}), outcome))
        kept = {name: value for name, value in answer.headers.items() if name in ("Content-Type", "ETag")}
        if request.method == "HEAD":
            kept["Content-Length"] = answer.headers.get("Content-Length", "0")
        return web.Response(body=raw, status=answer.status, headers=kept)


def _http(reply: native.HttpReply) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, headers={"Content-Type": reply.content_type})
