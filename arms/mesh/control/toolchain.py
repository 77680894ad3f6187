"""What runners of checks and their plugins take for granted, as data, and which of it a declaration needs."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from arms.mesh.control.compiler import package_name
from arms.mesh.control.declaration import Declaration
from arms.mesh.control.strict import load


class Need(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that a runner takes for granted. allowed: () for any. phase: needed only where that
    phase is gone through."""

    about: str
    allowed: tuple[str, ...] = ()
    phase: str | None = None


class Tool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of check (program: what runs it) or a plugin (kind: of what)."""

    needs: dict[str, Need]
    program: str = ""
    kind: str = ""


class Toolchain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`toolchain.yaml`."""

    version: int
    kinds: dict[str, Tool]
    plugins: dict[str, Tool]


TOOLCHAIN = load(Path(__file__).with_name("toolchain.yaml"), Toolchain)


def needed(declaration: Declaration, only: str | None = None) -> dict[tuple[str, str], Need]:
    """Settings that the declared checks take for granted, by kind of check and name, from kinds and plugins. only: of
    the runs of this component."""
    found: dict[tuple[str, str], Need] = {}
    for check in declaration.delivery.checks.values():
        for component in (one for one in (check.component, *check.also_run_by) if only in (None, one)):
            pins = map(package_name, declaration.delivery.packages.get(component, ()))
            plugins = [TOOLCHAIN.plugins[pin] for pin in pins if pin in TOOLCHAIN.plugins]
            for tool in (TOOLCHAIN.kinds[check.kind], *(p for p in plugins if p.kind == check.kind)):
                phases = (None, *declaration.delivery.phases_of(component))
                found |= {(check.kind, name): need for name, need in tool.needs.items() if need.phase in phases}
    return found
