"""The packages whose code is mutated: fetched once, checked at every use, and never part of this repository.

Why by pip: whatever index and certificates a machine is configured for are then used as for any other installation.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from harness.core.errors import ConfigError

LOCK = Path(__file__).with_name("packages.yaml")
ENV = "AGENTMESH_CACHE"
PREPARE = "python -m workloads.repository_mutation"
PIP_LIMIT_S = 600


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source distribution. sha256: of the archive. sources: globs of the files that may be mutated; tests: of its own
    tests; also: of what else these need. target: what a check runs. A leading `src/` of a path is dropped, so that the
    package can be imported from the folder that it lies in. matrix: digest of its kill matrix by minor version of
    Python, e.g. `3.11`."""

    name: str
    version: str
    sha256: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    target: str
    also: tuple[str, ...] = ()
    matrix: dict[str, str] = {}

    @property
    def id(self) -> str:
        return f"{self.name}-{self.version}"


@cache
def locked() -> tuple[Package, ...]:
    """The packages of the lock file. Raises ConfigError when it is not as it should be."""
    try:
        return msgspec.convert(yaml.safe_load(LOCK.read_text(encoding="utf-8"))["packages"], tuple[Package, ...])
    except (msgspec.ValidationError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(f"the lock file of the packages is broken: {error}", where=LOCK.name) from error


def root() -> Path:
    """The cache: AGENTMESH_CACHE, else a folder of the user's cache folder."""
    base = os.environ.get(ENV) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentmesh"
    return Path(base)


def folder(package: Package) -> Path:
    """Where the package, and what was computed of it, is kept."""
    return root() / "packages" / package.id


def fetch(package: Package) -> None:
    """Put the archive into the cache, unless a good one is there. Raises ConfigError when it cannot be had."""
    place = folder(package) / "sdist.tar.gz"
    if place.exists() and _digest(place.read_bytes()) == package.sha256:
        return
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        said = _pip_download(wanted, Path(scratch))
        archives = list(Path(scratch).glob("*.tar.gz"))
        if not archives or _digest(archives[0].read_bytes()) != package.sha256:
            raise ConfigError(
                f"the source of {package.name} {package.version} cannot be had: {said}",
                where=LOCK.name,
                hint=f"give pip access to an index that has it, or copy a filled cache and name it in {ENV}",
            )
        write(place, archives[0].read_bytes())


def _pip_download(wanted: Path, into: Path) -> str:
    """Let pip download what the file asks for; what it said last."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--require-hashes", "--dest", str(into), "--requirement", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PIP_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"pip did not end within {PIP_LIMIT_S} s"
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return lines[-1] if lines else f"pip ended with status {done.returncode}"


def write(place: Path, content: bytes) -> None:
    """Write beside and rename: whoever reads at the same time sees all or nothing."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as beside:
        try:
            beside.write(content)
            beside.close()
            os.replace(beside.name, place)
        except BaseException:
            os.unlink(beside.name)
            raise


def tree(package: Package) -> dict[str, str]:
    """Path to text of the package's files that a workspace gets.

    Raises ConfigError when the cache lacks the archive or holds another one than the lock file pins.
    """
    place = folder(package) / "sdist.tar.gz"
    try:
        raw = place.read_bytes()
    except OSError:
        raise unprepared(package, "the source is not in the cache") from None
    if _digest(raw) != package.sha256:
        raise unprepared(package, "the archive in the cache is not the one that is pinned")
    return dict(_unpacked(package, raw))


def unprepared(package: Package, problem: str) -> ConfigError:
    return ConfigError(f"{package.name} {package.version}: {problem}", where=LOCK.name, hint=f"run `{PREPARE}` first")


_OPENED: dict[str, dict[str, str]] = {}


def _unpacked(package: Package, raw: bytes) -> dict[str, str]:
    """The text of the wanted files of an archive that was just checked; opened once in a process."""
    if package.sha256 not in _OPENED:
        found = {}
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                path = member.name.partition("/")[2].removeprefix("src/")
                file = archive.extractfile(member) if _wanted(package, path) else None
                if file is not None:
                    found[path] = file.read().decode("utf-8")
        _OPENED[package.sha256] = found
    return _OPENED[package.sha256]


def _wanted(package: Package, path: str) -> bool:
    return within(path, (*package.sources, *package.tests, *package.also))


def within(path: str, globs: Iterable[str]) -> bool:
    """Whether a path is in one of the globs, whose `*` stays within a folder."""
    return any(path.count("/") == glob.count("/") and fnmatch.fnmatchcase(path, glob) for glob in globs)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def by_name(name: str) -> Package:
    """The package of this name. Raises KeyError when the lock file has none."""
    return {package.name: package for package in locked()}[name]
