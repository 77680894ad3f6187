"""Stories of a system that was built well and does not work, or works well and is not believed.

Each variant of a story is a small generated system, which really is built, booted and probed: as processes in the live
world, called in memory in the sim world.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from arms.mesh import preview
from harness.core.types import EffectContract, Json, Verdict
from harness.incidents.play import Played, PlayedWorld, Side, read, without_end
from harness.incidents.preview import Prober, bearer_headers
from harness.world.preview.systems import Component, RunningSystem, booted, in_memory, write

BUILD_MAX_S = 60.0

Fault = tuple[str, str]
"""Kind of a fault and the component whose fault it is."""


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system, as a change of the story's. files: texts by path, null for a file that was never generated. env, by
    component: variables, null for one that is not set. fallback: by component. probe: who asks on the mesh's side: its
    own probe, or one of somebody else that knows bearer tokens only. faults: what is really wrong, as kind and owner.
    verdict: what the mesh has to say."""

    name: str
    files: dict[str, str | None] = {}
    env: dict[str, dict[str, str | None]] = {}
    fallback: dict[str, str] = {}
    probe: Literal["gateway", "bearer"] = "gateway"
    faults: tuple[Fault, ...] = ()
    verdict: Verdict


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """measure: what is counted, defects that were shipped or rounds of repair of what is right. rounds_max: how many
    such rounds somebody may order. terms: of the contract (`gateway_auth`, `preview`)."""

    measure: Literal["defects shipped", "repair rounds"]
    terms: dict[str, Json]
    components: dict[str, Component]
    files: dict[str, str]
    variants: tuple[Variant, ...]
    rounds_max: int = 6


class System(Struct, frozen=True, kw_only=True):
    """One variant, put together."""

    files: dict[str, str]
    components: dict[str, Component]


def play(story: Mapping[str, Any], side: Side, world: PlayedWorld, arm: str = "mesh") -> Played:
    """Play every variant on one side; nothing of it depends on an arm, since no layer takes part. Raises ConfigError
    for a story that cannot be read."""
    told: Story = read(story, Story)
    declared = preview.declaration(EffectContract(terms=told.terms))
    if told.measure == "defects shipped":
        return _play_defects(told, declared, side, world)
    return _play_repairs(told, declared, side, world)


def assemble(story: Story, variant: Variant) -> System:
    """The system of a variant."""
    files = {**story.files, **variant.files}
    components = {
        name: replace(
            one,
            env={**one.env, **variant.env.get(name, {})},
            fallback=variant.fallback.get(name, one.fallback),
        )
        for name, one in story.components.items()
    }
    return System(files={path: text for path, text in files.items() if text is not None}, components=components)


def observe(
    system: System, declared: preview.Declaration, headers: Mapping[str, str], world: PlayedWorld
) -> tuple[preview.Observation, ...]:
    """Boot a system, ask it, and end it."""
    boot: AbstractContextManager[RunningSystem] = (
        booted(system.components, system.files) if world == "live" else in_memory(system.components, system.files)
    )
    given = {name: one.given() for name, one in system.components.items()}
    with boot as running:
        return Prober(running, declared, headers, given).observe()


def builds(system: System, world: PlayedWorld) -> bool:
    """Whether the build is green: every module compiles, every data file parses."""
    try:
        for path, text in system.files.items():
            if path.endswith(".json"):
                json.loads(text)
            elif path.endswith(".py") and world == "sim":
                compile(text, path, "exec")
    except (SyntaxError, ValueError):
        return False
    return world == "sim" or _compiles(system)


def _compiles(system: System) -> bool:
    with tempfile.TemporaryDirectory(prefix="build-") as folder:
        write(Path(folder), system.files)
        command = [sys.executable, "-I", "-m", "compileall", "-q", folder]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=BUILD_MAX_S)
    return done.returncode == 0


# --- defects: a green build of what does not work ------------------------------------------------------------------


def _play_defects(story: Story, declared: preview.Declaration, side: Side, world: PlayedWorld) -> Played:
    wrong: dict[str, str] = {}
    said: dict[str, str] = {}
    for variant in story.variants:
        system = assemble(story, variant)
        if side == "naive":
            if builds(system, world) and variant.faults:
                wrong[variant.name] = "shipped"
            continue
        findings = preview.judge(_seen(system, declared, variant, world), declared)
        said[variant.name] = preview.verdict(findings)
        blamed = {(f.kind, f.owner) for f in findings if f.verdict is Verdict.REJECTED}
        if blamed != set(variant.faults) or said[variant.name] != variant.verdict:
            wanted = f"{variant.verdict} {sorted(variant.faults)}"
            wrong[variant.name] = f"{said[variant.name]} {sorted(blamed)}, wanted {wanted}"
    return _played(story, side, wrong, said, count=len(wrong))


# --- repairs: what is right and is not believed --------------------------------------------------------------------


def _play_repairs(story: Story, declared: preview.Declaration, side: Side, world: PlayedWorld) -> Played:
    wrong: dict[str, str] = {}
    said: dict[str, str] = {}
    signatures: list[str] = []
    endless = False
    before: list[System] = []
    for variant in story.variants:
        system = assemble(story, variant)
        if side == "naive" and system in before:
            continue  # here one probe asks, whoever asks on the other side
        before.append(system)
        rounds: list[str] = []
        while len(rounds) < story.rounds_max:
            seen = _seen(system, declared, variant, world, side)
            findings = preview.judge(seen, declared)
            accused = _denied(seen) if side == "naive" else _blamed(findings)
            said[variant.name] = preview.verdict(findings) if side == "mesh" else ""
            if not accused:
                break
            rounds.append(_signature(seen))
            system = _repaired(system, {owner for _, owner in accused}, len(rounds))
        signatures += rounds
        if rounds:
            endless = endless or len(rounds) == story.rounds_max
            wrong[variant.name] = f"{len(rounds)} rounds of repair of what is right, of {story.rounds_max} at most"
        elif side == "mesh" and said[variant.name] != variant.verdict:
            wrong[variant.name] = f"{said[variant.name]}, wanted {variant.verdict}"
    facts = {"signatures": len(set(signatures))}
    played = _played(story, side, wrong, said, count=len(signatures), **facts)
    return replace(played, unit=without_end(played.unit)) if endless else played


def _denied(seen: Sequence[preview.Observation]) -> set[Fault]:
    """Whom a platform wakes that holds every answer but a good one for a fault of the one who gave it."""
    return {("route", one.component) for one in seen if one.status is None or one.status >= 400}


def _blamed(findings: Sequence[preview.Finding]) -> set[Fault]:
    return {(one.kind, one.owner) for one in findings if one.verdict is Verdict.REJECTED}


def _signature(seen: Sequence[preview.Observation]) -> str:
    """What a round of repair failed with: equal as long as nothing got better."""
    failed = [[one.component, one.path, one.status] for one in seen if one.status is None or one.status >= 400]
    return hashlib.sha256(json.dumps(failed).encode()).hexdigest()


def _repaired(system: System, owners: set[str], round: int) -> System:
    """The owners write their modules anew: other bytes, and as right as before."""
    modules = {one.module for name, one in system.components.items() if name in owners and one.module}
    files = {path: text + f"# written anew, {round}\n" * (path in modules) for path, text in system.files.items()}
    return System(files=files, components=system.components)


# --- both ----------------------------------------------------------------------------------------------------------


def _seen(
    system: System, declared: preview.Declaration, variant: Variant, world: PlayedWorld, side: Side = "mesh"
) -> tuple[preview.Observation, ...]:
    bearer = side == "naive" or variant.probe == "bearer"
    headers = bearer_headers(declared.auth) if bearer else preview.gateway_headers(declared.auth)
    return observe(system, declared, headers, world)


def _played(
    story: Story, side: Side, wrong: Mapping[str, str], said: Mapping[str, str], *, count: int, **facts: Any
) -> Played:
    """The verdict on the whole is the gravest that was given to a variant."""
    order = (Verdict.REJECTED, Verdict.ABSTAINED, Verdict.EXECUTED)
    return Played(
        failed=bool(wrong),
        count=count,
        unit=story.measure,
        verdict=next((v for v in order if v in said.values()), "") if side == "mesh" else "",
        told=_told(wrong) or f"{len(story.variants)} systems judged as they are",
        facts={"variants": len(story.variants), "wrong": dict(wrong), "verdicts": dict(said), **facts},
    )


def _told(wrong: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in wrong.items())
