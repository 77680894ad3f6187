"""Serves one component of a generated system over HTTP; run as a script it is that component's own process.

Standard library only and no import of ours, so that the process sees nothing but the component's files and its own
environment. In memory the same functions answer, so that both worlds give the same answers.

A component is a module that exposes `respond(method, path, headers, env) -> (status, headers, body)`, with header
names in lower case, or a folder of files.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
Respond = Callable[[str, str, dict[str, str]], Reply]

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Fixed here, since the table of `mimetypes` differs between machines."""


def component(spec: Mapping[str, str], files: Mapping[str, str], env: Mapping[str, str]) -> Respond:
    """What answers for a component.

    spec: `module`, the path of its module, or `static`, its folder, with `fallback`, the file that stands for every
    path that is not there ("" for none). files: the texts by path. Raises whatever the module raises when it loads.
    """
    if spec.get("module"):
        return _module(spec["module"], files, env)
    return _static(spec["static"], spec.get("fallback", ""), files)


def _module(path: str, files: Mapping[str, str], env: Mapping[str, str]) -> Respond:
    space: dict[str, Any] = {"__name__": "component"}
    exec(compile(files[path], path, "exec"), space)
    respond = space["respond"]

    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        try:
            status, answered, body = respond(method, path, headers, dict(env))
            return int(status), {k.lower(): str(v) for k, v in answered.items()}, str(body).encode()
        except (Exception, SystemExit) as error:  # as web frameworks do: the request fails, the service lives on
            return 500, {"content-type": "text/plain"}, f"{type(error).__name__}: {error}".encode()

    return answer


def _static(folder: str, fallback: str, files: Mapping[str, str]) -> Respond:
    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        name = path.split("?")[0].strip("/")
        tries = [name, f"{name}/index.html".strip("/"), *([fallback] if fallback else [])]
        for wanted in (f"{folder}/{one}" for one in tries if one):
            if wanted in files:
                kind = TYPES.get(os.path.splitext(wanted)[1], "application/octet-stream")
                return 200, {"content-type": kind}, files[wanted].encode()
        return 404, {"content-type": "text/plain"}, b"not found"

    return answer


def _handler(respond: Respond) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = respond("GET", self.path, {k.lower(): v for k, v in self.headers.items()})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads a log here."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the look-up of the host's full name, which can take seconds where there is no name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]


PR_SET_PDEATHSIG = 1


def die_with(parent_pid: int) -> None:
    """Ask Linux to kill this process when its parent ends, even while it is stopped; at once, if it already has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def _end_with_parent() -> None:
    """The parent holds the other end of standard input: when it is gone, however it went, so is this process."""
    sys.stdin.buffer.read()
    os._exit(0)


def main(root: str) -> None:
    """Serve the component that the first line of standard input describes; say the port on standard output."""
    spec = json.loads(sys.stdin.buffer.readline())
    if "parent" in spec:
        die_with(spec["parent"])
    files = {str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in Path(root).rglob("*") if p.is_file()}
    server = _Server(("127.0.0.1", 0), _handler(component(spec, files, os.environ)))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
