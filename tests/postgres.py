"""A PostgreSQL server for the tests that need one: a given one, or a private one from the system's binaries.

Why private: nothing needs to be set up on a fresh machine, and nothing of it is left behind.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

GIVEN = "AGENTMESH_POSTGRES_DSN"
REQUIRED = ("CI", "AGENTMESH_REQUIRE_POSTGRES")
START_S = 30.0


def binaries() -> Path | None:
    """The folder of the server's programs, the newest version that is installed."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in found if (f / "initdb").exists() and (f / "postgres").exists()), None)


def server_user() -> str | None:
    """The user to run the server as: ourselves, or, since it refuses to run as root, the one of its package."""
    if os.getuid():
        return pwd.getpwuid(os.getuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def as_user(user: str) -> list[str]:
    """What stands before a command that is to run as this user."""
    if os.getuid():
        return []
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


@contextmanager
def running() -> Iterator[str]:
    """The DSN of a server, for as long as the block lasts. Without binaries the test is skipped, or fails where the
    environment says that they must be there."""
    if os.environ.get(GIVEN):
        yield os.environ[GIVEN]
        return
    programs, user = binaries(), server_user()
    if programs is None or user is None:
        because = f"no PostgreSQL: initdb and postgres are neither on PATH nor in /usr/lib/postgresql; or set {GIVEN}"
        if any(os.environ.get(name) for name in REQUIRED):
            pytest.fail(because)
        pytest.skip(because)
    folder = Path(tempfile.mkdtemp(prefix="ampg"))  # addresses of sockets are short, and its user must get there
    try:
        if not os.getuid():
            shutil.chown(folder, user)
        with _server(programs, user, folder) as dsn:
            yield dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(programs: Path, user: str, folder: Path) -> Iterator[str]:
    data = folder / "data"
    made = [*as_user(user), str(programs / "initdb"), "-D", str(data), "-U", "mesh", "--auth=trust", "--no-sync", "-E"]
    subprocess.run([*made, "UTF8"], check=True, capture_output=True, cwd=folder)
    # processes die here, machines do not: what is committed need not reach the disk
    settings = {"listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off", "max_connections": "60"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [*as_user(user), str(programs / "postgres"), "-D", str(data), *options]
    dsn = f"postgresql:///postgres?host={folder}&user=mesh"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _await(process, dsn, folder / "log")
            yield dsn
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(dsn).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server does not start: {log.read_text()}") from error
            time.sleep(0.05)
