"""The services of one live worker, started once and shared by its trials through namespaces, and their fault proxies.

`toxiproxy-python` is the control client, also towards the embedded proxy. It blocks and keeps host and port in class
attributes, so a process has one of these, and calls go through a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from msgspec import Struct, field
from toxiproxy import Toxiproxy
from toxiproxy.proxy import Proxy

from harness.core.clock import Clock
from harness.core.roles import Cut, Task, Workload
from harness.core.types import Json
from harness.world.live.cassette import NoAnswer
from harness.world.live.completions import Completion, Declined, ToolCallSpec
from harness.world.live.database import DatabaseService
from harness.world.live.provider import ProviderServer
from harness.world.live.realmodel import RealModel, SpendCapReached
from harness.world.live.registry import RegistryService
from harness.world.live.repository import RepositoryService
from harness.world.live.toxiproxy import ToxiproxyServer, launch_real
from harness.world.live.transport import TransportService
from harness.world.live.upstream import Upstreams

PROXIED = ("transport", "database", "registry", "provider", "repository")
HOST = "127.0.0.1"
REMOTES = "remotes"
"""Folder of the git remotes, beside that of the databases."""

ABANDONED_S = 5.0

Truth = Callable[[str, str, Mapping[str, Json]], None]


class Tenant(Struct, frozen=True, kw_only=True):
    """One trial's place in the services. stream: variation stream of its agent. asked: how often it made each request
    to a model elsewhere, which gives that model's cassette the trial's id."""

    ns: str
    trial: str = ""
    task: Task
    workload: Workload
    stream: int
    clock: Clock
    asked: Counter[str] = field(default_factory=Counter)


class Services:
    """All of them. truth(ns, kind, data) is called when something really happened. model: answers in place of the
    workload's script."""

    def __init__(
        self, truth: Truth, folder: Path, seed: int, external_proxy: bool = False, model: RealModel | None = None
    ) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._truth = truth
        self.transport = TransportService(self._tell)
        self.database = DatabaseService(self._tell, folder)
        self.registry = RegistryService(self._tell)
        self._model = model
        forward = None if model is None else self._forward
        self.provider = ProviderServer(self._tell, self._reply, _site_of, ("scripted", "small"), forward=forward)
        self.repository = RepositoryService(self._tell, folder.with_name(REMOTES))
        self._proxy = ToxiproxyServer(seed, self._suffered)
        self.external_proxy = external_proxy
        self._real: asyncio.subprocess.Process | None = None
        self._seed = seed
        self._ports: dict[str, int] = {}
        self._heals: dict[str, list[asyncio.TimerHandle]] = {}
        self._proxies: dict[str, Proxy] = {}

    async def start(self) -> None:
        for name in PROXIED:
            self._ports[name] = await getattr(self, name).start(HOST)
        app = web.Application()
        app.add_routes([web.post("/{ns}/{hook}", self._hook_ran)])
        self._hooks = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._hooks.setup()
        await web.TCPSite(self._hooks, HOST, 0).start()
        self._ports["hook"] = self._hooks.addresses[0][1]
        if self.external_proxy:
            port = _free_port()
            self._real = await launch_real(port, self._seed)
        else:
            port = await self._proxy.start(HOST)
        self._client = Toxiproxy()
        self._client.update_api_consumer(HOST, port)

    async def stop(self) -> None:
        if self._real is not None:
            self._real.terminate()
            await self._real.wait()
        else:
            await self._proxy.stop()
        await self._hooks.cleanup()
        for name in PROXIED:
            await getattr(self, name).stop()

    async def open(self, tenant: Tenant) -> Upstreams:
        """A namespace with empty services and proxies of its own; addresses as its orchestrator sees them."""
        ns = tenant.ns
        self._tenants[ns] = tenant
        for name in PROXIED:
            await getattr(self, name).open(ns)
        async with aiohttp.ClientSession() as client:
            for service, statements in tenant.task.tables.items():
                url = f"http://{HOST}:{self._ports['database']}/{ns}/{service}/schema"
                async with client.post(url, json={"statements": list(statements)}) as answer:
                    answer.raise_for_status()
        if _has_remote(tenant.task):
            texts = tenant.task.files.items()
            await self.repository.create(ns, {path: self.as_found(path, text) for path, text in texts})
        ports = dict(zip(PROXIED, await asyncio.to_thread(self._create_proxies, ns), strict=True))
        return Upstreams(
            transport=(HOST, ports["transport"]),
            database=f"http://{HOST}:{ports['database']}/{ns}",
            registry=f"http://{HOST}:{ports['registry']}/{ns}",
            provider=f"http://{HOST}:{ports['provider']}/{ns}",
            repository=f"http://{HOST}:{ports['repository']}/{ns}",
            hook=f"http://{HOST}:{self._ports['hook']}/{ns}",
        )

    async def close(self, ns: str) -> list[str]:
        """Take the namespace down; names of what could not be removed."""
        for timer in self._heals.pop(ns, []):
            timer.cancel()
        residues = await asyncio.to_thread(self._destroy_proxies, ns)
        for name in PROXIED:
            residues += await getattr(self, name).close(ns)
        self._tenants.pop(ns, None)
        return residues

    def as_found(self, path: str, text: str) -> str:
        """A file as every attempt finds it: a lock file has the hashes of the wheels that this index has."""
        if not path.endswith(".lock"):
            return text
        return "\n".join(self.registry.lock_lines([line.partition("==")[0] for line in text.split()])) + "\n"

    # --- harm -------------------------------------------------------------------------------------------------

    async def cut(self, ns: str, boundary: str, name: str, cut: Cut) -> None:
        """Put a cut in place on a trial's own proxy, as the toxic `name`.

        It ends when the orchestrator says so, which is once the call that it was aimed at has suffered it; if that
        process dies first, it ends ABANDONED_S after its time.
        """
        clock = self._tenants[ns].clock
        await asyncio.to_thread(self._add_toxic, f"{ns}-{boundary}", name, cut, clock)
        self._later(clock.real_s(cut.ms) + ABANDONED_S, ns, boundary, name)

    async def heal(self, ns: str, boundary: str, name: str, after_ms: float = 0.0) -> None:
        """Remove a toxic of a trial's proxy, now or after some nominal time."""
        if after_ms > 0:
            self._later(self._tenants[ns].clock.real_s(after_ms), ns, boundary, name)
        elif ns in self._tenants:
            await asyncio.to_thread(self._remove_toxic, f"{ns}-{boundary}", name)

    def _later(self, delay_s: float, ns: str, boundary: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay_s, lambda: loop.create_task(self.heal(ns, boundary, name)))
        self._heals.setdefault(ns, []).append(timer)

    def fail(self, ns: str, status: Any, site: str) -> None:
        """The provider's next answer to this site of the namespace is an error."""
        self.provider.arm_failure(ns, status, site=site)

    def _create_proxies(self, ns: str) -> list[int]:
        made = []
        for name in PROXIED:
            upstream = f"{HOST}:{self._ports[name]}"
            proxy = self._client.create(name=f"{ns}-{name}", upstream=upstream, listen=f"{HOST}:0")
            self._proxies[f"{ns}-{name}"] = proxy
            made.append(int(proxy.listen.rpartition(":")[2]))
        return made

    def _destroy_proxies(self, ns: str) -> list[str]:
        for name in PROXIED:
            if (proxy := self._proxies.pop(f"{ns}-{name}", None)) is not None:
                proxy.destroy()
        return [f"proxy {name}" for name in self._client.proxies() if name.startswith(f"{ns}-")]

    def _add_toxic(self, proxy: str, name: str, cut: Cut, clock: Clock) -> None:
        kind, attributes = _toxic(cut, clock)
        self._proxies[proxy].add_toxic(name=name, type=kind, stream=cut.stream, attributes=attributes)

    def _remove_toxic(self, proxy: str, name: str) -> None:
        found = self._proxies.get(proxy)
        if found is not None and name in found.toxics():
            found.destroy_toxic(name)

    # --- truth ------------------------------------------------------------------------------------------------

    def _tell(self, ns: str, kind: str, data: Mapping[str, Json]) -> None:
        if kind == "rejected":
            self._truth(ns, "suffered", {"boundary": "provider", "what": f"http-{data['status']}"})
        self._truth(ns, kind, data)

    def _suffered(self, event: Mapping[str, Any]) -> None:
        """The proxy's data path harmed a connection. `closed` only gives the totals of a harm already told."""
        if event["event"] == "closed":
            return
        ns, _, boundary = str(event["proxy"]).partition("-")
        what = {k: v for k, v in event.items() if k not in ("proxy", "event")}
        self._truth(ns, "suffered", {"boundary": boundary, "what": event["event"], **what})

    async def _hook_ran(self, request: web.Request) -> web.Response:
        ns, hook = request.match_info["ns"], request.match_info["hook"]
        body = await request.json()
        if ns not in self._tenants:
            return web.Response(status=404)
        data = {"boundary": "hook", "hook": hook, "path": body["path"], "receipt": f"hook-{hook}"}
        self._truth(ns, "effect", data)
        return web.Response()

    def _reply(self, ns: str, request: dict[str, Any], nth: int) -> Completion:
        tenant = self._tenants[ns]
        reply = tenant.workload.reply(tenant.task, request, nth, tenant.stream)
        calls = tuple(ToolCallSpec(name, arguments) for name, arguments in reply.tool_calls)
        return Completion(reply.content, calls, "tool_calls" if calls else "stop", reply.drifting)

    async def _forward(self, ns: str, request: dict[str, Any], prompt_tokens: int) -> Completion | Declined:
        """What the model elsewhere says. What ends a trial is told as truth, and the client gets an error."""
        assert self._model is not None
        tenant = self._tenants[ns]
        try:
            return await self._model.answer(tenant.trial, tenant.asked, request, prompt_tokens)
        except SpendCapReached as cap:
            self._truth(ns, "budget", {"cap": str(cap)})
            return Declined(402, {}, '{"error": {"message": "the run may spend nothing more"}}')
        except NoAnswer as error:
            self._truth(ns, "missing", {"error": str(error)})
            return Declined(404, {}, '{"error": {"message": "nobody answers"}}')
        except Exception as error:  # a disk that is full must not pass for an error of the model
            self._truth(ns, "broken", {"error": repr(error)})
            raise


def _has_remote(task: Task) -> bool:
    """Whether a delegation of the plan, or one that may be woken, declares effects at a repository."""
    everybody = (*task.delegations, *task.system.repairs.values())
    return any(effect.boundary == "repository" for d in everybody for effect in d.contract.effects)


def _site_of(request: Any) -> str:
    metadata = request.get("metadata") or {}
    return "service" if "ref" in metadata else f"{metadata.get('delegation')}/{metadata.get('phase')}"


def _toxic(cut: Cut, clock: Clock) -> tuple[str, dict[str, int]]:
    """A cut as a toxic of Toxiproxy, whose times are real milliseconds."""
    hold_ms = int(clock.real_s(cut.hold_ms) * 1000)
    return {
        "reset": ("reset_peer", {"timeout": 0}),
        "timeout": ("timeout", {"timeout": max(hold_ms, 1)}),
        "blackhole": ("timeout", {"timeout": 0}),
        "limit": ("limit_data", {"bytes": cut.bytes}),
        "slow": ("latency", {"latency": hold_ms}),
    }[cut.how]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
