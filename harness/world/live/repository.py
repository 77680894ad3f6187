"""A git remote per trial, served over git's smart HTTP protocol by git itself, that tells which references moved.

Why our own server around it: each trial must see remotes of its own, and that a push happened has to come from what
`git receive-pack` left in the reflog, never from what a client asked for or was told.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from harness.core.errors import HarnessBug
from harness.world.live import gitwire
from harness.world.live.gitwire import Told

Truth = Callable[[str, str, dict[str, Any]], None]
Move = tuple[str, str]
"""The object that a reference was at, and the one that it went to."""

BRANCH = "main"
SERVICES = ("git-upload-pack", "git-receive-pack")
SEED = "Agentmesh <agentmesh@example.invalid> 1760000000 +0000"
"""Who made the first commit, and when: the same files give the same object in every trial."""

CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = true
\tlogAllRefUpdates = always
[receive]
\tdenyDeletes = true
\tautogc = false
"""
ENV = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_COMMITTER_NAME": "remote",
    "GIT_COMMITTER_EMAIL": "remote@example.invalid",
}


class RepositoryService:
    """The remotes of all trials of one worker, each a bare repository of its namespace.

    git's smart HTTP protocol at ``/{ns}/{remote}``; ``GET /{ns}/{remote}/activity?ref=...`` -> ``{"moves": [{old, new,
    tree, message}]}``, how a reference moved, oldest first, as forges let anybody read it; and ``GET
    /{ns}/{remote}/objects/{name}`` -> a commit or tag as git keeps it. A remote that was not made is a 404.
    ``truth(namespace, "effect", {boundary, operation, remote, ref, old, new, tree, message, who, receipt})`` is called
    once a reference has moved, before anybody is answered; ``tree`` is empty for a tag.
    """

    def __init__(self, truth: Truth, folder: str | os.PathLike[str]) -> None:
        self._truth, self._folder = truth, Path(folder)
        self._locks: dict[str, asyncio.Lock] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port (a free one for 0). Raises ``OSError`` when the port is taken."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/{ns}/{remote}/info/refs", self._advertise)
        app.router.add_get("/{ns}/{remote}/activity", self._activity)
        app.router.add_get("/{ns}/{remote}/objects/{name:[0-9a-f]{40}}", self._object)
        app.router.add_post("/{ns}/{remote}/git-upload-pack", self._upload)
        app.router.add_post("/{ns}/{remote}/git-receive-pack", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Drop all clients and remotes, and free the port."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        for ns in list(self._locks):
            await self.close(ns)

    async def open(self, ns: str) -> None:
        """Admit a namespace, which has no remote yet."""
        self._locks[ns] = asyncio.Lock()

    async def close(self, ns: str) -> list[str]:
        """Remove the remotes of a namespace, once what is under way there has ended; what could not be removed."""
        lock = self._locks.pop(ns, None)
        if lock is None:
            return []
        async with lock:
            await asyncio.to_thread(shutil.rmtree, self._folder / ns, True)
        return [f"remotes of {ns}"] if (self._folder / ns).exists() else []

    def place(self, ns: str, remote: str) -> Path:
        """The folder of a remote, a bare repository."""
        return self._folder / ns / f"{remote}.git"

    async def create(self, ns: str, files: Mapping[str, str], remote: str = "origin") -> None:
        """Make a remote whose branch ``main`` has one commit with these files, path to text; none at all for no files.

        Raises HarnessBug when git cannot.
        """
        place = self.place(ns, remote)
        for part in ("objects", "refs"):
            (place / part).mkdir(parents=True)
        (place / "HEAD").write_text(f"ref: refs/heads/{BRANCH}\n")
        (place / "config").write_text(CONFIG)
        if files:
            status, said = await _git(place, "fast-import", "--quiet", "--date-format=raw", data=_first_commit(files))
            if status:
                raise HarnessBug(f"git could not make a remote: exit status {status} {said[:200]!r}")

    # --- the protocol ---------------------------------------------------------------------------------------------

    def _asked(self, request: web.Request) -> tuple[asyncio.Lock, Path, str, str]:
        ns, remote = request.match_info["ns"], request.match_info["remote"]
        lock, place = self._locks.get(ns), self.place(ns, remote)
        if lock is None or remote.startswith(".") or not place.is_dir():
            raise web.HTTPNotFound(text="no such remote")
        return lock, place, ns, remote

    async def _advertise(self, request: web.Request) -> web.Response:
        _, place, *_ = self._asked(request)
        service = request.query.get("service", "")
        if service not in SERVICES:
            raise web.HTTPForbidden(text="no such service")
        command = service.removeprefix("git-")
        status, refs = await _git(place, command, "--stateless-rpc", "--http-backend-info-refs", str(place))
        head = gitwire.pkt(f"# service={service}\n".encode()) + gitwire.FLUSH
        return _answer(f"application/x-{service}-advertisement", status, head + refs)

    async def _upload(self, request: web.Request) -> web.Response:
        _, place, *_ = self._asked(request)
        status, pack = await _git(place, "upload-pack", "--stateless-rpc", str(place), data=await request.read())
        return _answer("application/x-git-upload-pack-result", status, pack)

    async def _receive(self, request: web.Request) -> web.Response:
        """One push at a time: what is new in the reflogs afterwards is what it did."""
        lock, place, ns, remote = self._asked(request)
        body = await request.read()
        try:
            refs = sorted({command.ref for command in gitwire.push_request(body).commands})
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        async with lock:
            before = {ref: len(_reflog(place, ref)) for ref in refs}
            status, report = await _git(place, "receive-pack", "--stateless-rpc", str(place), data=body)
            moves = [(ref, *move) for ref in refs for move in _reflog(place, ref)[before[ref] :]]
            said = await _told(place, [new for _, _, new in moves])
            for ref, old, new in moves:
                self._moved(ns, remote, ref, (old, new), said[new], await _blobs(place, said[new].tree))
        return _answer("application/x-git-receive-pack-result", status, report)

    def _moved(self, ns: str, remote: str, ref: str, move: Move, said: Told, blobs: dict[str, str]) -> None:
        old, new = move
        operation = gitwire.Command(old, new, ref).operation
        data = {"boundary": "repository", "operation": operation, "remote": remote, "ref": ref, "old": old, "new": new}
        told = {"tree": said.tree, "message": said.message, "who": said.who}
        content = {"tagged": said.tagged} if said.tagged else {"blobs": blobs}
        self._truth(ns, "effect", {**data, **told, **content, "receipt": receipt(ref, new)})

    async def _activity(self, request: web.Request) -> web.Response:
        lock, place, *_ = self._asked(request)
        ref = request.query.get("ref", "")
        if not ref.startswith("refs/") or ".." in ref:
            raise web.HTTPBadRequest(text="no such reference")
        async with lock:
            moves = _reflog(place, ref)
            said = await _told(place, [new for _, new in moves])
        told = [{"tree": said[new].tree, "message": said[new].message} for _, new in moves]
        both = zip(moves, told, strict=True)
        return web.json_response({"moves": [{"old": old, "new": new, **more} for (old, new), more in both]})

    async def _object(self, request: web.Request) -> web.Response:
        _, place, *_ = self._asked(request)
        content = (await _contents(place, [request.match_info["name"]])).popitem()[1]
        if not content:
            raise web.HTTPNotFound(text="no such commit or tag")
        return web.Response(body=content, content_type="application/octet-stream")


def receipt(ref: str, new: str) -> str:
    """What names the move of a reference, for whoever knows what it was moved to."""
    return f"{ref}@{new}"


def _answer(content_type: str, status: int, body: bytes) -> web.Response:
    """git's answer; what it left unsaid by ending badly is an error of the server."""
    if status and not body:
        raise web.HTTPInternalServerError(text=f"git ended with status {status}")
    return web.Response(body=body, content_type=content_type, headers={"Cache-Control": "no-cache"})


async def _git(place: Path, command: str, *args: str, data: bytes = b"") -> tuple[int, bytes]:
    """Exit status and output of git, run to its end whatever becomes of whoever asked."""
    process = await asyncio.create_subprocess_exec(
        "git",
        command,
        *args,
        cwd=place,
        env=ENV | {"GIT_DIR": str(place)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate(data)
    assert process.returncode is not None
    return process.returncode, output


def _reflog(place: Path, ref: str) -> list[Move]:
    log = place / "logs" / ref
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return [(line[:40], line[41:81]) for line in lines]


async def _told(place: Path, names: Sequence[str]) -> dict[str, Told]:
    """What commits and tags say of themselves, by name."""
    return {name: gitwire.told(content) for name, content in (await _contents(place, names)).items()}


async def _blobs(place: Path, tree: str) -> dict[str, str]:
    """git's names of the contents of a tree's files, by path; nothing for no tree."""
    if not tree:
        return {}
    _, output = await _git(place, "ls-tree", "-r", "-z", tree)
    rows = [line.partition("\t") for line in output.decode(errors="replace").split("\0") if line]
    return {path: head.split()[2] for head, _, path in rows}


async def _contents(place: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Commits and tags as git keeps them, by name; b"" for whatever else, or nothing, has the name."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    _, output = await _git(place, "cat-file", "--batch", data="".join(f"{name}\n" for name in wanted).encode())
    found, at = {}, 0
    for name in wanted:
        line, _, _ = output[at:].partition(b"\n")
        at += len(line) + 1
        kind, *size = line.split()[1:]
        if not size:  # `missing`
            found[name] = b""
            continue
        end = at + int(size[0])
        found[name] = output[at:end] if kind in (b"commit", b"tag") else b""
        at = end + 1
    return found


def _first_commit(files: Mapping[str, str]) -> bytes:
    """What `git fast-import` makes the first commit of."""
    message = b"Initial state\n"
    lines = [f"commit refs/heads/{BRANCH}\ncommitter {SEED}\ndata {len(message)}\n".encode(), message]
    for path, text in sorted(files.items()):
        raw = text.encode()
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'M 100644 inline "{quoted}"\ndata {len(raw)}\n'.encode() + raw + b"\n")
    return b"".join(lines) + b"\n"
