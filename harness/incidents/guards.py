"""Every guard of the mesh with its mutation, primitive by primitive."""

from __future__ import annotations

from harness.incidents import guards_control, guards_m1_m4, guards_m2, guards_m3, guards_m5_m6, guards_preview
from harness.incidents.play import Guard

GUARDS: tuple[Guard, ...] = (
    *guards_m1_m4.GUARDS,
    *guards_m2.GUARDS,
    *guards_m3.GUARDS,
    *guards_m5_m6.GUARDS,
    *guards_preview.GUARDS,
    *guards_control.GUARDS,
)
