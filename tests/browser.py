"""A headless Chromium for the tests that look at a page: found on PATH, driven through its DevTools protocol.

Why not a driver library: everything that is needed is one web socket, and `aiohttp` is there already.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GIVEN = "AGENTMESH_BROWSER"
REQUIRED = ("CI", "AGENTMESH_REQUIRE_BROWSER")
START_S = 60.0
ANSWER_S = 40.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # it may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-ipc-flooding-protection",  # else it ignores the 201st link that is followed within ten seconds
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def program() -> str:
    """The browser's program. Without one the test is skipped, or fails where the environment says that it must be
    there."""
    given = os.environ.get(GIVEN)
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    because = f"no browser: none of {', '.join(NAMES)} is on PATH; or set {GIVEN}"
    if any(os.environ.get(name) for name in REQUIRED):
        pytest.fail(because)
    pytest.skip(because)


@pytest.fixture
def browser() -> str:
    """The browser's program, or the reason why the test does not run."""
    return program()


class Page:
    """An open tab. requests: addresses that it asked for; problems: what it wrote to the console as an error, and
    exceptions that nobody caught."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._number = 0

    async def open(self, url: str) -> None:
        """Load an address and wait until its scripts have run."""
        self._loaded.clear()
        await self.call("Page.navigate", url="about:blank")  # a change of the hash alone would not load it anew
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def value(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression; a promise is awaited."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def dark(self, wanted: bool = True) -> None:
        """Prefer a dark colour scheme, or a light one."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        return await asyncio.wait_for(answer, ANSWER_S)

    async def _listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if "error" in told:
                    answer.set_exception(RuntimeError(str(told["error"])))
                else:
                    answer.set_result(told["result"])
            else:
                self._happened(told["method"], told["params"])

    def _happened(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            self.problems.append(str(params["args"]))


@asynccontextmanager
async def page() -> AsyncIterator[Page]:
    """An empty tab of a browser of its own, which ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="ambrowser"))
    command = [program(), *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        port = await _port(process, folder)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                found = Page(socket)
                listener = asyncio.create_task(found._listen())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await found.call(f"{domain}.enable")
                yield found
                listener.cancel()
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


async def _port(process: subprocess.Popen[bytes], folder: Path) -> int:
    """The port that the browser chose; it writes it to a file."""
    until, told = time.monotonic() + START_S, folder / "DevToolsActivePort"
    while True:
        if told.exists() and (lines := told.read_text().splitlines()):
            return int(lines[0])
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the browser does not start: {(folder / 'log').read_text()}")
        await asyncio.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the browser with its children, which are in a process group of their own."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
