"""Every guard of the mesh with its mutation, primitive by primitive."""

from __future__ import annotations

from harness.incidents.play import Guard

GUARDS: tuple[Guard, ...] = ()
