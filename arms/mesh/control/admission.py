"""Admission control: whether a declared system may be started at all, and if not, what would have to be stated.

A plan that cannot be satisfied costs its whole budget before anybody sees that it could not. So feasibility is proven
first: by gates over the declaration, and by a dry run of everything that can be run without an agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from math import ceil

from msgspec import Struct

from arms.mesh.control import compiler, planner
from arms.mesh.control.compiler import Compiled, package_name
from arms.mesh.control.declaration import Check, Declaration
from arms.mesh.control.toolchain import TOOLCHAIN, needed
from harness.core.errors import ConfigError, did_you_mean
from harness.core.strict_yaml import Path
from harness.core.types import PHASES, Delegation

Read = Callable[[str], str | None]
"""The text of a file of the repository as it is before the first phase, None where there is none."""
Validate = Callable[[Sequence[Delegation]], None]
"""An orchestrator's own check of a plan; raises ConfigError."""
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+_-]*")


class Refusal(Struct, frozen=True, kw_only=True):
    """what: the problem. where: `file:line: path`. allowed: legal values, "" for none. satisfy: what to do."""

    what: str
    where: str
    satisfy: str
    allowed: str = ""

    def __str__(self) -> str:
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{self.where}: {self.what}{allowed}; to satisfy it: {self.satisfy}"


class Admission(Struct, frozen=True, kw_only=True):
    """compiled: the plan, None while the needs are cyclic."""

    admitted: bool
    refusals: tuple[Refusal, ...]
    compiled: Compiled | None


def admit(
    declaration: Declaration,
    *,
    read: Read = lambda path: None,
    resolves: Callable[[str], bool] | None = None,
    validate: Validate | None = None,
) -> Admission:
    """Every reason why a declaration cannot be built. resolves: whether a program can be run, None where it does not
    matter. validate: handed in by whoever knows the orchestrator."""
    waiting = tuple(cyclic(declaration))
    refusals = [
        *waiting,
        *overlapping(declaration),
        *unwritable(declaration),
        *unproven(declaration),
        *keyless(declaration),
        *unstated(declaration),
        *misstated(declaration),
        *oversized(declaration),
        *unpinned(declaration, read),
        *absent(declaration, read),
        *(unresolved(declaration, resolves) if resolves else ()),
    ]
    compiled = None if waiting else compiler.compile(declaration)
    if compiled:
        refusals += walk(declaration, compiled, validate)
    return Admission(admitted=not refusals, refusals=tuple(refusals), compiled=compiled)


# --- gates over the declaration -------------------------------------------------------------------------------------


def _no(declaration: Declaration, at: Path, what: str, satisfy: str, allowed: Iterable[str] = ()) -> Refusal:
    return Refusal(what=what, where=declaration.where(*at), satisfy=satisfy, allowed=", ".join(allowed))


def cyclic(declaration: Declaration) -> Iterator[Refusal]:
    """Components that wait for each other."""
    structure = declaration.structure
    if waiting := sorted(c for c in structure.components if c in structure.before(c)):
        at = ("structure", "components", waiting[0], "needs")
        yield _no(declaration, at, f"{', '.join(waiting)} wait for each other", "take one of the needs away")


def overlapping(declaration: Declaration) -> Iterator[Refusal]:
    """Two components that may write one path. A sub-agent works inside its parent's set, and after it."""
    structure = declaration.structure
    for (a, one), (b, other) in combinations(sorted(structure.components.items()), 2):
        both = [(x, y) for x in one.paths for y in other.paths if meet(_plain(x), _plain(y))]
        if both and a not in structure.line(b) and b not in structure.line(a):
            what = f"{a} and {b} may both write what {both[0][0]!r} and {both[0][1]!r} cover"
            at = ("structure", "components", b, "paths")
            yield _no(declaration, at, what, "give the path to one of them, and let the other need it")


def _plain(glob: str) -> str:
    return re.sub(r"\[[^]]*\]", "?", glob.replace("**", "*"))  # a set of characters counts as any character


def meet(one: str, other: str) -> bool:
    """Whether some text matches both patterns of literals, `*` and `?`: whether both can be gone through together."""
    ahead, seen = [(0, 0)], set[tuple[int, int]]()
    while ahead:
        at = ahead.pop()
        if at in seen:
            continue
        seen.add(at)
        i, j = at
        a, b = one[i : i + 1], other[j : j + 1]
        if not a and not b:
            return True
        if "*" in (a, b):
            ahead += [(i + 1, j)] if a else []
            ahead += [(i, j + 1)] if b else []
        elif a and b and (a == b or "?" in (a, b)):
            ahead.append((i + 1, j + 1))
    return False


def unwritable(declaration: Declaration) -> Iterator[Refusal]:
    """Artefacts, and files made for a check, that their component may not write."""
    made: list[tuple[str, str, Path]] = [
        (component, path, ("behaviour", "scenarios", name, "asserts", component, "artefacts", i))
        for name, scenario in declaration.behaviour.scenarios.items()
        for component, assertion in scenario.asserts.items()
        for i, path in enumerate(assertion.artefacts)
    ]
    made += [(c.component, path, at) for c, path, at in _files(declaration) if c.made_in]
    for component, path, at in made:
        paths = declaration.structure.components[component].paths
        if not any(fnmatchcase(path, glob.replace("**", "*")) for glob in paths):
            what = f"{component} has to make {path!r} and may not write it"
            satisfy = f"add it to structure.components.{component}.paths, or let its owner make it"
            yield _no(declaration, at, what, satisfy, paths)


def unproven(declaration: Declaration) -> Iterator[Refusal]:
    """Obligations that no executable check would ever show to be met."""
    proven = {scenario for check in declaration.delivery.checks.values() for scenario in check.scenarios}
    for name in declaration.behaviour.scenarios:
        if name not in proven:
            what = f"no executable check proves scenario {name!r}"
            satisfy = f"name it in the scenarios of a check of delivery.checks (kinds: {', '.join(TOOLCHAIN.kinds)})"
            yield _no(declaration, ("behaviour", "scenarios", name), what, satisfy)


def keyless(declaration: Declaration) -> Iterator[Refusal]:
    """Effects that could be asked for and carry nothing to ask by: in doubt, they could only wait for a person."""
    for component, effects in declaration.behaviour.effects.items():
        for i, effect in enumerate(effects):
            if effect.boundary in planner.POLICY.probed and not effect.key:
                what = f"the {effect.boundary} effect {effect.operation} {effect.target} has no key"
                satisfy = "state in key the dotted payload paths that tell one intended effect from another"
                yield _no(declaration, ("behaviour", "effects", component, i), what, satisfy)


def unstated(declaration: Declaration) -> Iterator[Refusal]:
    """Defaults that a failure would hide behind: nobody who mends the work could mend them."""
    for (kind, name), need in sorted(needed(declaration).items(), key=lambda item: item[0]):
        if name not in declaration.delivery.toolchain.get(kind, {}):
            satisfy = f"state delivery.toolchain.{kind}.{name}: {need.about}"
            at = ("delivery", "toolchain", kind)
            yield _no(declaration, at, f"{kind} takes {name} for granted", satisfy, need.allowed)


def misstated(declaration: Declaration) -> Iterator[Refusal]:
    """Settings that no tool has, or with a value that it would not take."""
    for kind, settings in declaration.delivery.toolchain.items():
        tools = [t for name, t in (TOOLCHAIN.kinds | TOOLCHAIN.plugins).items() if kind in (name, t.kind)]
        known = {name: need for tool in tools for name, need in tool.needs.items()}
        for name, value in settings.items():
            at, need = ("delivery", "toolchain", kind, name), known.get(name)
            if need is None:
                satisfy = did_you_mean(name, known) or "take it away"
                yield _no(declaration, at, f"{kind} has no setting {name!r}", satisfy, known or TOOLCHAIN.kinds)
            elif need.allowed and value not in need.allowed:
                satisfy = did_you_mean(str(value), need.allowed) or f"choose {need.about}"
                yield _no(declaration, at, f"{name} is {value!r}", satisfy, need.allowed)
            elif name.endswith("_ms") and (isinstance(value, str | bool) or value <= 0):
                satisfy = f"state {need.about}"
                yield _no(declaration, at, f"{name} is {value!r}", satisfy, ["milliseconds above 0"])


def oversized(declaration: Declaration) -> Iterator[Refusal]:
    """Units that cannot be sliced any further and do not fit what may be planned of their budget."""
    for one in planner.slices(declaration):
        if one.tokens > one.limit_tokens:
            scenarios = ", ".join(sorted({unit.scenario for unit in one.units})) or "no scenario"
            way = "mode tdd, which slices it" if declaration.delivery.mode == "direct" else "artefacts that fewer share"
            satisfy = f"a budget of at least {ceil(one.tokens / planner.POLICY.slice_share)} tokens, or {way}"
            what = f"{one.id} is one unit of about {one.tokens} tokens ({scenarios})"
            at = ("delivery", "budgets", one.components[0], "tokens")
            yield _no(declaration, at, what, satisfy, [f"at most {one.limit_tokens} planned tokens"])


# --- the dry run: what can be executed without an agent ---------------------------------------------------------------


def unpinned(declaration: Declaration, read: Read) -> Iterator[Refusal]:
    """Pins that cannot be parsed, and packages that are used (by structure, effects or a lock file) without one."""
    delivery = declaration.delivery
    for component, pins in delivery.packages.items():
        for i, pin in enumerate(pins):
            if not _PIN.fullmatch(pin):
                where = ("delivery", "packages", component, i)
                yield _no(declaration, where, f"{pin!r} is no pin", "pin one version", ["name==version"])
    for component in declaration.structure.components:
        known = sorted(map(package_name, delivery.packages.get(component, ())))
        for package, at in _used(declaration, component, read).items():
            if package_name(package) not in known:
                what = f"{component} uses the package {package!r}, which delivery does not declare"
                yield _no(declaration, at, what, f"pin it in delivery.packages.{component}", known)


def _used(declaration: Declaration, component: str, read: Read) -> dict[str, Path]:
    """Packages that a component uses, and where that stands."""
    at: Path = ("structure", "components", component, "packages")
    used: dict[str, Path] = {name: at for name in declaration.structure.components[component].packages}
    for i, effect in enumerate(declaration.behaviour.effects.get(component, ())):
        if effect.boundary == "registry" and effect.target != "*":
            used[effect.target] = ("behaviour", "effects", component, i, "target")
    for name, check in declaration.delivery.checks.items():
        if check.kind == "install" and check.component == component and not check.made_in:
            lines = [line.partition("#")[0].strip() for line in (read(check.target) or "").splitlines()]
            used |= {line: ("delivery", "checks", name, "target") for line in lines if line}
    return used


def absent(declaration: Declaration, read: Read) -> Iterator[Refusal]:
    """Files of checks that are neither there nor made in a phase that is gone through."""
    for check, path, at in _files(declaration):
        phases = declaration.delivery.phases_of(check.component)
        if check.made_in not in (None, *phases):
            what = f"{path!r} is made in {check.made_in}, which the {declaration.delivery.mode} mode leaves out"
            yield _no(declaration, at, what, "name another phase in made_in", phases)
        elif check.made_in is None and read(path) is None:
            what = f"{path!r} is not in the repository, and no phase makes it"
            yield _no(declaration, at, what, "add the file, or name in made_in the phase that makes it", phases)


def _files(declaration: Declaration) -> Iterator[tuple[Check, str, Path]]:
    for name, check in declaration.delivery.checks.items():
        for key, path in (("target", check.target), ("steps", check.steps)):
            if path:
                yield check, path, ("delivery", "checks", name, key)


def unresolved(declaration: Declaration, resolves: Callable[[str], bool]) -> Iterator[Refusal]:
    """Checks whose program cannot be run here."""
    for name, check in declaration.delivery.checks.items():
        program = TOOLCHAIN.kinds[check.kind].program
        if not resolves(program):
            at = ("delivery", "checks", name, "kind")
            yield _no(declaration, at, f"there is no program {program!r} for it", f"install {program}")


def unsatisfiable(declaration: Declaration, components: Sequence[str], fixtures: Sequence[str]) -> tuple[str, ...]:
    """Those of the fixtures that lie in the state of others, so that these components can never bring them forth."""
    nodes, states = declaration.structure.nodes(), declaration.behaviour.fixtures
    return tuple(f for f in fixtures if nodes[states[f]].component not in components)


def walk(declaration: Declaration, compiled: Compiled, validate: Validate | None) -> Iterator[Refusal]:
    """Go through the plan in its order as an orchestrator without agents would: what each delegation starts with is
    there, and what it must run it can afford."""
    checks, ready = declaration.delivery.checks, dict[str, set[str]]()
    components = {one.id: one.components for one in planner.slices(declaration)}
    for one in compiled.delegations:
        mine, terms = components[one.id], one.contract.terms
        ready[one.id] = {*mine, *(c for need in one.needs for c in ready.get(need, ()))}
        for name in one.contract.checks:
            if checks[name].made_in and checks[name].component not in ready[one.id]:
                what = f"{one.id} runs {name!r}, which {checks[name].component} may not have made by then"
                at: Path = ("delivery", "checks", name, "also_run_by")
                yield _no(declaration, at, what, f"let it need {checks[name].component}")
        if not one.phases:
            at = ("delivery", "phases", mine[0])
            yield _no(declaration, at, f"{one.id} goes through no phase", "name one that the mode has", PHASES)
        if (count := len(one.contract.checks)) > terms["check_runs_max"]:
            what = f"{one.id} has {count} checks and may run {terms['check_runs_max']}"
            at = ("delivery", "budgets", mine[0], "check_runs")
            yield _no(declaration, at, what, f"allow at least {count} check_runs")
        if foreign := unsatisfiable(declaration, mine, terms["fixtures"]):
            what = f"{one.id} must have the rows {', '.join(foreign)}, which lie in the state of others"
            at = ("behaviour", "fixtures", foreign[0])
            yield _no(declaration, at, what, "let the component that holds them assert them")
    try:
        if validate is not None:
            validate(compiled.delegations)
    except ConfigError as error:
        at = ("structure", "components")
        yield _no(declaration, at, error.problem, "change needs or parents", filter(None, [error.allowed]))
