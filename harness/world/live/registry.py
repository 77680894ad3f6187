"""A Python package index with real wheels that counts every download it served completely.

Why our own: an installer must fetch real files from a real index, each trial must see an index of its own, and the
download count has to come from the index itself, because an installer's exit code says nothing about what it fetched
before it died. The index offers each wheel's metadata as a separate file (PEP 658, PEP 714), so that an installer
resolves without touching the wheel and every wheel request is a fetch.
"""

import base64
import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from aiohttp import web

Truth = Callable[[str, str, dict[str, Any]], None]

PIECE_BYTES = 1 << 17
"""Wheels are written in pieces of this size; above aiohttp's 64 KiB, so that each write waits for the socket."""

MESHMONEY = '''\
"""Money arithmetic on decimals: amounts of one currency, rounded half-even to whole cents."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")


@dataclass(frozen=True, order=True)
class Money:
    """An amount in a currency given by its ISO 4217 code."""

    amount: Decimal
    currency: str

    def __post_init__(self):
        cents = Decimal(str(self.amount)).quantize(CENT, ROUND_HALF_EVEN)
        object.__setattr__(self, "amount", cents)

    def __add__(self, other):
        self._same_currency(other)
        return Money(self.amount + other.amount, self.currency)

    def __mul__(self, factor):
        return Money(self.amount * Decimal(str(factor)), self.currency)

    def _same_currency(self, other):
        if self.currency != other.currency:
            raise ValueError(f"cannot mix {self.currency} and {other.currency}")


def allocate(total, weights):
    """Split an amount by weights without losing or gaining a cent."""
    shares, rest, left = [], total.amount, sum(map(Decimal, weights))
    for weight in map(Decimal, weights):
        share = (rest * weight / left).quantize(CENT, ROUND_HALF_EVEN) if left else Decimal(0)
        shares.append(Money(share, total.currency))
        rest, left = rest - share, left - weight
    return shares
'''

MESHUNITS = '''\
"""Unit conversion for length, mass and volume, exact on decimals."""

from decimal import Decimal

FACTORS = {
    "length": {"mm": "0.001", "cm": "0.01", "m": "1", "km": "1000", "in": "0.0254", "ft": "0.3048", "mi": "1609.344"},
    "mass": {"g": "0.001", "kg": "1", "t": "1000", "oz": "0.028349523125", "lb": "0.45359237"},
    "volume": {"ml": "0.001", "l": "1", "m3": "1000", "gal": "3.785411784"},
}


def dimension(unit):
    """The dimension that a unit measures. Raises ValueError for an unknown unit."""
    for name, factors in FACTORS.items():
        if unit in factors:
            return name
    raise ValueError(f"unknown unit {unit!r}")


def convert(value, source, target):
    """A value in another unit of the same dimension. Raises ValueError across dimensions."""
    name = dimension(source)
    if dimension(target) != name:
        raise ValueError(f"cannot convert {source} to {target}")
    return Decimal(str(value)) * Decimal(FACTORS[name][source]) / Decimal(FACTORS[name][target])
'''

MESHPRICE = '''\
"""The price of a quantity in any unit, from a price per unit."""

from meshmoney import Money
from meshunits import convert


def price(per_unit, unit, quantity, quantity_unit):
    """What a quantity costs when one unit costs the given money."""
    return per_unit * convert(quantity, quantity_unit, unit)
'''


class Package(msgspec.Struct, frozen=True):
    """One pure-Python distribution with a single module of the same name; ``requires`` names other packages here."""

    name: str
    version: str
    source: str
    requires: tuple[str, ...] = ()


PACKAGES = (
    Package("meshmoney", "1.2.0", MESHMONEY),
    Package("meshunits", "2.0.1", MESHUNITS),
    Package("meshprice", "0.3.0", MESHPRICE, requires=("meshmoney", "meshunits")),
)


class Wheel(msgspec.Struct, frozen=True):
    """A built distribution: its file name, its bytes and the METADATA inside."""

    package: Package
    file: str
    body: bytes
    metadata: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def build_wheel(package: Package) -> Wheel:
    """Build the wheel of a package; the same package gives the same bytes on every machine.

    Entries are stored, not deflated, since zlib's output differs between its versions. Source: the binary
    distribution format of packaging.python.org (PEP 427) and core metadata 2.1.
    """
    info = f"{package.name}-{package.version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\nRequires-Python: >=3.9\n"
    metadata += "".join(f"Requires-Dist: {name}\n" for name in package.requires)
    wheel = "Wheel-Version: 1.0\nGenerator: agentmesh\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {f"{package.name}.py": package.source, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    files[f"{info}/RECORD"] = "".join(_record_line(*item) for item in files.items()) + f"{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # else both depend on the platform
            archive.writestr(entry, text)
    file = f"{package.name}-{package.version}-py3-none-any.whl"
    return Wheel(package, file, buffer.getvalue(), metadata.encode())


def _record_line(path: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text.encode())}\n"


class RegistryService:
    """The package index of all trials of one worker; every namespace has its own index and its own counts.

    GET ``/{ns}/simple/``, ``/{ns}/simple/{project}/`` (PEP 503), ``/{ns}/files/{wheel}``,
    ``/{ns}/files/{wheel}.metadata``, ``/{ns}/stats/{wheel}`` -> ``{"downloads": n}``. A namespace that is not open
    is a 404. ``truth(namespace, "effect", {boundary, operation, package, version, file, receipt})`` is called when the
    last byte of a wheel was handed to the operating system, ``truth(namespace, "partial", {..., bytes, of_bytes})``
    when the client left before that; ``bytes`` is what the operating system had surely taken, a lower bound.
    """

    def __init__(self, truth: Truth, packages: Iterable[Package] = PACKAGES) -> None:
        self._truth = truth
        self._wheels = {wheel.file: wheel for wheel in map(build_wheel, packages)}
        self._projects = {_normal(wheel.package.name): wheel for wheel in self._wheels.values()}
        self._downloads: dict[str, Counter[str]] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port (a free one for 0). Raises ``OSError`` when the port is taken."""
        app = web.Application()
        app.router.add_get("/{ns}/simple/", self._projects_page)
        app.router.add_get("/{ns}/simple/{project}/", self._project_page)
        app.router.add_get("/{ns}/files/{file}", self._file)
        app.router.add_get("/{ns}/stats/{file}", self._stats)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Drop all clients and counts, and free the port."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        self._downloads.clear()

    async def open(self, ns: str) -> None:
        """Start a namespace's index with all counts at zero."""
        self._downloads[ns] = Counter()

    async def close(self, ns: str) -> list[str]:
        """Forget the namespace; nothing can remain."""
        self._downloads.pop(ns, None)
        return []

    def lock_lines(self, names: Iterable[str]) -> tuple[str, ...]:
        """Requirement lines with hashes for the named packages and all they require, sorted.

        Raises ``KeyError`` for a name that the index does not have.
        """
        wheels: dict[str, Wheel] = {}
        waiting = [_normal(name) for name in names]
        while waiting:
            name = waiting.pop()
            if name not in wheels:
                wheels[name] = self._projects[name]
                waiting += map(_normal, wheels[name].package.requires)
        return tuple(f"{name}=={w.package.version} --hash=sha256:{w.sha256}" for name, w in sorted(wheels.items()))

    def _counts(self, request: web.Request) -> Counter[str]:
        counts = self._downloads.get(request.match_info["ns"])
        if counts is None:
            raise web.HTTPNotFound(text="no such index")
        return counts

    async def _projects_page(self, request: web.Request) -> web.StreamResponse:
        self._counts(request)
        return _page(f'<a href="{name}/">{name}</a>' for name in sorted(self._projects))

    async def _project_page(self, request: web.Request) -> web.StreamResponse:
        self._counts(request)
        wheel = self._projects.get(_normal(request.match_info["project"]))
        if wheel is None:
            raise web.HTTPNotFound(text="no such project")
        core = f"sha256={hashlib.sha256(wheel.metadata).hexdigest()}"
        attributes = f'data-core-metadata="{core}" data-dist-info-metadata="{core}" data-requires-python="&gt;=3.9"'
        return _page([f'<a href="../../files/{wheel.file}#sha256={wheel.sha256}" {attributes}>{wheel.file}</a>'])

    async def _stats(self, request: web.Request) -> web.StreamResponse:
        counts, file = self._counts(request), request.match_info["file"]
        if file not in self._wheels:
            raise web.HTTPNotFound(text="no such file")
        return web.json_response({"downloads": counts[file]})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        counts, file = self._counts(request), request.match_info["file"]
        wheel = self._wheels.get(file.removesuffix(".metadata"))
        if wheel is None:
            raise web.HTTPNotFound(text="no such file")
        if file.endswith(".metadata"):
            return web.Response(body=wheel.metadata, content_type="application/octet-stream")
        ns, of_bytes = request.match_info["ns"], len(wheel.body)
        headers = {"Content-Type": "application/zip", "Content-Length": str(of_bytes)}
        if request.method == "HEAD":
            return web.Response(headers=headers)
        response = web.StreamResponse(headers=headers)
        written = await _write(request, response, wheel.body)
        package, data = wheel.package, {"boundary": "registry", "operation": "fetch"}
        data |= {"package": package.name, "version": package.version, "file": file}
        if self._downloads.get(ns) is not counts:
            pass  # the namespace was closed while the client took its time
        elif written < of_bytes:
            self._truth(ns, "partial", {**data, "bytes": written, "of_bytes": of_bytes})
        else:
            counts[file] += 1
            self._truth(ns, "effect", {**data, "receipt": f"{file}#{counts[file]}"})
        return response


async def _write(request: web.Request, response: web.StreamResponse, body: bytes) -> int:
    """Send a body and return how many bytes of it the operating system has taken; fewer than all if the client left."""
    written = 0
    try:
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=0)  # so that waiting for the socket means an empty buffer
        await response.prepare(request)
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(body)
            await (response.write_eof(piece) if last else response.write(piece))
            if request.transport is None or request.transport.is_closing():
                break
            written += len(piece)
    except ConnectionError:
        pass
    return written


def _normal(name: str) -> str:
    """A project name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _page(anchors: Iterable[str]) -> web.Response:
    body = "\n".join(anchors)
    return web.Response(text=f"<!DOCTYPE html><html><body>\n{body}\n</body></html>\n", content_type="text/html")
