"""A fault proxy that is controlled over Toxiproxy's HTTP API, so that the usual clients drive it unmodified.

It stands in for `toxiproxy-server` where only Python is installed, and adds two things that the original lacks: every
draw depends on (seed, proxy, toxic, nth connection) alone, and the harm that connections really suffered is reported.

Source of the API: api.go and the two collections of Shopify/toxiproxy v2.12, and a comparison of the answers of both.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from harness.world.live.toxigo import (
    PROXY_FIELDS,
    ApiError,
    Handler,
    answer_like_go,
    decode,
    encode_proxy,
    encode_toxic,
    encode_toxics,
    json_answer,
    read_population,
    read_proxy,
    read_toxic,
    update_toxic,
)
from harness.world.live.toxiport import Proxy, ProxyError, ProxyStats, canonical_listen

VERSION = "2.12.0"
LAUNCH_DEADLINE_S = 10.0


class ToxiproxyServer:
    """The proxies and their control API in the running event loop.

    on_event is called from the data path with a dictionary of proxy, event, toxic, stream, connection (nth of the
    proxy, from 1), bytes_forwarded (of this stream on this connection) and bytes_dropped (lost to this toxic). Events:
    "delayed", "sliced", "held", "cut" or "reset", once per connection and toxic on the first harm; "closed" with the
    totals when a harmed connection is over; "severed" when disabling a proxy or changing its address dropped a live
    connection (toxic and stream are None, the bytes those of both streams), but not when it is deleted, which is how
    it is taken down. It must not block; what it raises goes to the exception handler of the event loop and leaves the
    traffic alone.
    """

    def __init__(self, seed: int, on_event: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        self._seed = seed
        self._on_event = on_event
        self._proxies: dict[str, Proxy] = {}
        self._runner: web.AppRunner | None = None
        self._changing = asyncio.Lock()  # one change at a time: starting and stopping a listener awaits

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Serve the API and return its port; 0 picks a free one. Raises OSError when the address is taken."""
        if self._runner is not None:
            raise RuntimeError("the fault proxy is already started")
        application = web.Application(middlewares=[answer_like_go])
        application.add_routes(self._routes())
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the API, every listener and every connection; no socket and no task is left. Twice is harmless."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        async with self._changing:
            for proxy in self._proxies.values():
                await proxy.stop(reported=False)
            self._proxies.clear()

    def stats(self, proxy_name: str) -> ProxyStats:
        """Totals of a proxy up to now. Raises KeyError for a proxy that does not exist (any more)."""
        if proxy_name not in self._proxies:
            raise KeyError(f"no proxy named {proxy_name!r}; there are: {', '.join(sorted(self._proxies)) or 'none'}")
        return self._proxies[proxy_name].stats()

    def _emit(self, event: Mapping[str, Any]) -> None:
        try:
            if self._on_event is not None:
                self._on_event(event)
        except Exception as error:
            context = {"message": f"fault proxy: on_event failed for {event}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _routes(self) -> list[web.RouteDef]:
        proxy, toxics, toxic = "/proxies/{proxy}", "/proxies/{proxy}/toxics", "/proxies/{proxy}/toxics/{toxic}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/version", self._version),
            ("POST", "/reset", self._reset),
            ("POST", "/populate", self._populate),
            ("GET", "/proxies", self._list_proxies),
            ("POST", "/proxies", self._create_proxy),
            ("GET", proxy, self._show_proxy),
            ("POST", proxy, self._update_proxy),
            ("PATCH", proxy, self._update_proxy),
            ("DELETE", proxy, self._delete_proxy),
            ("GET", toxics, self._list_toxics),
            ("POST", toxics, self._create_toxic),
            ("GET", toxic, self._show_toxic),
            ("POST", toxic, self._update_toxic),
            ("PATCH", toxic, self._update_toxic),
            ("DELETE", toxic, self._delete_toxic),
        ]
        return [web.route(method, path, handler) for method, path, handler in table]

    # -- the server

    async def _version(self, request: web.Request) -> web.Response:
        body = f'{{"version": "{VERSION}"}}\n'.encode()
        return web.Response(body=body, headers={"Content-Type": "application/json;charset=utf-8"})

    async def _reset(self, request: web.Request) -> web.Response:
        async with self._changing:
            for proxy in self._proxies.values():
                await proxy.start()
                proxy.remove_toxics(proxy.toxics)
        return web.Response(status=204)

    async def _populate(self, request: web.Request) -> web.Response:
        """Make all proxies of a list; those before the first that fails stay, and are in the answer."""
        body = await request.read()
        made: list[Proxy] = []
        error: ApiError | None = None
        async with self._changing:
            try:
                for fields in read_population(body):
                    made.append(await self._add_or_replace(fields))
            except ApiError as raised:
                error = raised
            except ProxyError as raised:
                error = ApiError(str(raised), 500)
        shown = [encode_proxy(proxy) for proxy in made] or None
        if error is not None:
            return json_answer({"error": error.message, "status": error.status, "proxies": shown}, error.status)
        return json_answer({"proxies": shown}, 201)

    async def _add_or_replace(self, fields: Mapping[str, Any]) -> Proxy:
        existing = self._proxies.get(fields["name"])
        if existing is not None:
            same_listen = canonical_listen(existing.listen) == canonical_listen(fields["listen"])
            if same_listen and existing.upstream == fields["upstream"]:
                return existing
            await existing.stop(reported=False)
        return await self._add(fields)

    async def _add(self, fields: Mapping[str, Any]) -> Proxy:
        proxy = Proxy(fields["name"], fields["listen"], fields["upstream"], self._seed, self._emit)
        if fields["enabled"]:
            await proxy.start()
        self._proxies[proxy.name] = proxy
        return proxy

    # -- proxies

    async def _list_proxies(self, request: web.Request) -> web.Response:
        return json_answer({name: encode_proxy(proxy) for name, proxy in sorted(self._proxies.items())})

    async def _create_proxy(self, request: web.Request) -> web.Response:
        fields = read_proxy(await request.read())
        async with self._changing:
            if fields["name"] in self._proxies:
                raise ApiError("proxy already exists", 409)
            return json_answer(encode_proxy(await self._add(fields)), 201)

    async def _show_proxy(self, request: web.Request) -> web.Response:
        return json_answer(encode_proxy(self._proxy(request)))

    async def _update_proxy(self, request: web.Request) -> web.Response:
        """Change listen, upstream or enabled. A change of address drops the connections; the toxics stay."""
        body = await request.read()
        async with self._changing:
            proxy = self._proxy(request)
            present = {"listen": proxy.listen, "upstream": proxy.upstream, "enabled": proxy.enabled}
            fields = decode(body, "Proxy", PROXY_FIELDS, present)
            moved = canonical_listen(fields["listen"]) != canonical_listen(proxy.listen)
            if moved or fields["upstream"] != proxy.upstream or not fields["enabled"]:
                await proxy.stop(reported=True)
            if moved:
                proxy.listen = fields["listen"]
            proxy.upstream = fields["upstream"]
            if fields["enabled"]:
                await proxy.start()
            return json_answer(encode_proxy(proxy))

    async def _delete_proxy(self, request: web.Request) -> web.Response:
        async with self._changing:
            proxy = self._proxy(request)
            await proxy.stop(reported=False)
            del self._proxies[proxy.name]
        return web.Response(status=204)

    # -- toxics

    async def _list_toxics(self, request: web.Request) -> web.Response:
        return json_answer(encode_toxics(self._proxy(request)))

    async def _create_toxic(self, request: web.Request) -> web.Response:
        body = await request.read()
        proxy = self._proxy(request)
        toxic = read_toxic(body, proxy.toxics)
        proxy.set_toxic(toxic)
        return json_answer(encode_toxic(toxic))

    async def _show_toxic(self, request: web.Request) -> web.Response:
        proxy, name = self._toxic(request)
        return json_answer(encode_toxic(proxy.toxics[name]))

    async def _update_toxic(self, request: web.Request) -> web.Response:
        body = await request.read()
        proxy, name = self._toxic(request)
        toxic = update_toxic(body, proxy.toxics[name])
        proxy.set_toxic(toxic)
        return json_answer(encode_toxic(toxic))

    async def _delete_toxic(self, request: web.Request) -> web.Response:
        proxy, name = self._toxic(request)
        proxy.remove_toxics([name])
        return web.Response(status=204)

    def _proxy(self, request: web.Request) -> Proxy:
        proxy = self._proxies.get(request.match_info["proxy"])
        if proxy is None:
            raise ApiError("proxy not found", 404)
        return proxy

    def _toxic(self, request: web.Request) -> tuple[Proxy, str]:
        proxy, name = self._proxy(request), request.match_info["toxic"]
        if name not in proxy.toxics:
            raise ApiError("toxic not found", 404)
        return proxy, name


def real_server_on_path() -> str | None:
    """Where the real `toxiproxy-server` is, None when it is not installed."""
    return shutil.which("toxiproxy-server")


async def launch_real(port: int, seed: int) -> asyncio.subprocess.Process:
    """Start the real server on 127.0.0.1:port and wait until its API answers; the caller ends the process.

    Raises FileNotFoundError when it is not installed, OSError when the port is taken, RuntimeError when it ends or
    stays silent.
    """
    program = real_server_on_path()
    if program is None:
        raise FileNotFoundError("toxiproxy-server is not on PATH")
    with socket.socket() as probe:  # the server itself goes on without its API when the port is taken
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
    quiet = asyncio.subprocess.DEVNULL
    arguments = ("-host", "127.0.0.1", "-port", str(port), "-seed", str(seed))
    process = await asyncio.create_subprocess_exec(program, *arguments, stdin=quiet, stdout=quiet, stderr=quiet)
    deadline = asyncio.get_running_loop().time() + LAUNCH_DEADLINE_S
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if asyncio.get_running_loop().time() > deadline:
                process.kill()
                await process.wait()
                raise RuntimeError(f"toxiproxy-server did not answer on port {port} in {LAUNCH_DEADLINE_S} s") from None
            await asyncio.sleep(0.02)
        else:
            writer.close()
            await writer.wait_closed()
            return process
    raise RuntimeError(f"toxiproxy-server ended with status {process.returncode}")
