"""Who may import whom: one direction of data, enforced by a walk over the syntax trees."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("harness", "arms", "faults", "workloads")
VOCABULARY = ("harness.core.types", "harness.core.seams", "harness.core.roles", "harness.core.payload")

ALLOWED = {
    "harness.core": ("harness.core",),
    "harness.orchestrator": ("harness.core", "harness.orchestrator"),
    "harness.world": ("harness.core", "harness.world"),
    "harness.inject": ("harness.core", "harness.world.protocol"),
    "harness.trial": ("harness.core", "harness.orchestrator", "harness.world", "harness.inject"),
    "harness.simulate": (
        "harness.core",
        "harness.trial",
        "harness.orchestrator",
        "harness.world",
        "harness.inject",
    ),
    "harness.live": (
        "harness.core",
        "harness.trial",
        "harness.orchestrator",
        "harness.world",
        "harness.inject",
        "harness.runner",
        "harness.schedule",
        "harness.live",
    ),
    "harness.schedule": ("harness.core", "harness.schedule_file"),
    "harness.schedule_file": ("harness.core", "harness.schedule"),
    "harness.trace_store": ("harness.core", "harness.segment"),
    "harness.segment": ("harness.core",),
    "harness.runner": ("harness.core", "harness.schedule", "harness.trial", "harness.trace_store", "harness.catalogue"),
    "harness.pool": ("harness.core", "harness.schedule", "harness.simulate", "harness.trial", "harness.runner"),
    "harness.catalogue": ("harness.core", "arms", "faults", "workloads"),
    "harness.score": (
        "harness.core",
        "harness.trace_store",
        "harness.effects",
        "harness.accounting",
        "harness.hops",
        "harness.recognition",
        "harness.specs",
        "harness.turns",
        "workloads.oracles",
    ),
    "harness.specs": ("harness.core", "harness.specs"),
    "harness.hops": ("harness.core", "harness.turns"),
    "harness.recognition": ("harness.core", "harness.effects"),
    "harness.effects": ("harness.core", "harness.turns"),
    "harness.incidents": (
        "harness.core",
        "harness.catalogue",
        "harness.simulate",
        "harness.live",
        "harness.trial",
        "harness.orchestrator",
        "harness.world",
        "harness.inject",
        "harness.incidents",
        "arms",
        "workloads",
        "harness.runner",
        "harness.schedule",
    ),
    "harness.console": ("harness.core",),
    "harness.real_model": ("harness.core", "harness.schedule", "harness.trace_store", "harness.world.live"),
    "harness.evaluate": (
        "harness.core",
        "harness.analysis.stopped_at",
        "harness.catalogue",
        "harness.console",
        "harness.live.executor",
        "harness.manifest",
        "harness.pool",
        "harness.report.prereg",
        "harness.report.stopping",
        "harness.runner",
        "harness.schedule",
        "harness.schedule_file",
        "harness.seal",
        "harness.seeds",
        "harness.status",
        "harness.trace_store",
        "harness.watching",
        "harness.world.live.realmodel",
    ),
    "harness.analysis": (
        "harness.core",
        "harness.console",
        "harness.report",
        "harness.score",
        "harness.seal",
        "harness.segment",
        "harness.status",
        "harness.timeline",
        "harness.trace_store",
    ),
    "harness.judge": (
        "harness.core",
        "harness.schedule",
        "harness.trace_store",
        "harness.score",
        "harness.report",
    ),
    "harness.watching": ("harness.core", "harness.report.stopping", "harness.report.prereg"),
    "harness.commands": ("harness", "arms", "workloads"),
    "harness.calibration": (
        "harness.core",
        "harness.analysis",
        "harness.console",
        "harness.evaluate",
        "harness.segment",
        "harness.trace_store",
        "harness.score",
        "harness.metrics",
        "harness.stats",
        "harness.report",
        "harness.calibration",
    ),
    "harness.docs": (
        "harness.core",
        "harness.catalogue",
        "harness.metrics",
        "harness.report.ablation",
        "harness.report.cells",
        "harness.report.tables",
        "harness.incidents",
        "arms.mesh.gates",
    ),
    "harness.conformance": (
        "harness.core",
        "harness.catalogue",
        "harness.metrics",
        "harness.pool",
        "harness.runner",
        "harness.schedule",
        "harness.score",
        "harness.specs",
        "harness.conformance",
    ),
    "harness.sensitivity": (
        "harness.core",
        "harness.catalogue",
        "harness.console",
        "harness.metrics.effects",
        "harness.pool",
        "harness.report.plots",
        "harness.runner",
        "harness.schedule",
        "harness.schedule_file",
        "harness.score",
        "harness.sensitivity",
    ),
    "harness.skeletons": (
        *VOCABULARY,
        "harness.core.records",
        "harness.skeletons",
        "arms",
        "faults",
        "workloads.common",
    ),
    "harness.manifest": ("harness.core", "harness.schedule"),
    "harness.replay": ("harness.core", "harness.segment", "harness.trace_store"),
    "harness.timeline": ("harness.core", "harness.trace_store", "harness.replay", "harness.report.timeline"),
    "harness.query": (
        "harness.core",
        "harness.console",
        "harness.metrics",
        "harness.report.rows",
        "harness.segment",
        "harness.trace_store",
        "harness.query",
    ),
    "harness.telemetry": ("harness.core", "harness.query.extract", "harness.trace_store", "harness.telemetry"),
    "harness.verify": ("harness.core", "harness.schedule", "harness.trace_store"),
    "harness.seal": ("harness.core", "harness.schedule", "harness.schedule_file"),
    "harness.seeds": ("harness.core", "harness.schedule"),
    "harness.status": ("harness.core", "harness.schedule", "harness.seal", "harness.seeds", "harness.report.prereg"),
    "harness.replication": (
        "harness.core",
        "harness.analysis",
        "harness.catalogue",
        "harness.console",
        "harness.evaluate",
        "harness.manifest",
        "harness.report",
        "harness.runner",
        "harness.schedule",
        "harness.seal",
        "harness.segment",
        "harness.stats",
        "harness.status",
        "harness.trace_store",
        "harness.verify",
        "harness.replication",
    ),
    "harness.accounting": ("harness.core", "harness.turns"),
    "harness.turns": ("harness.core",),
    "harness.metrics": ("harness.core", "harness.metrics"),
    "harness.stats": ("harness.stats",),
    "harness.report": ("harness.core", "harness.metrics", "harness.stats", "harness.report"),
    "arms.common": (*VOCABULARY, "arms.common"),
    "arms.mesh": (*VOCABULARY, "harness.core.errors", "harness.core.strict_yaml", "arms.common", "arms.mesh"),
    "arms.naive": (*VOCABULARY, "arms.common", "arms.naive"),
    "arms.bare": VOCABULARY,
    "arms": (*VOCABULARY, "arms"),
    "faults": (*VOCABULARY, "faults"),
    "workloads.oracles": ("harness.core", "workloads"),
    "workloads.repository_mutation": (
        "harness.core.types",
        "harness.core.roles",
        "harness.core.rng",
        "harness.core.errors",
        "workloads",
    ),
    "workloads": ("harness.core.types", "harness.core.roles", "harness.core.rng", "workloads"),
}
"""Longest prefix wins. Oracles and reference runs may read records as well; see ORACLES."""

FORBIDDEN = {
    "harness.orchestrator": ("harness.core.records",),
    "harness.world": ("harness.core.records",),
    "harness.inject": ("harness.core.records",),
    "harness.catalogue": ("workloads.oracles",),
    "workloads": ("workloads.oracles",),
}
ORACLES = (".oracle", ".reference", ".mutants")


def modules() -> list[tuple[str, Path]]:
    found = []
    for top in OURS:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in OURS}


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def rule(table: dict[str, tuple[str, ...]], module: str) -> tuple[str, ...] | None:
    keys = [key for key in table if module == key or module.startswith(key + ".")]
    return table[max(keys, key=len)] if keys else None


def violations(module: str, path: Path) -> list[str]:
    if module in OURS and module != "arms" and module != "faults" and module != "workloads":
        return []
    if module == "harness.cli":
        return [n for n in imports(path) if n.endswith(ORACLES) or within(n, ("workloads.oracles",))]
    allowed = rule(ALLOWED, module)
    if allowed is None:
        return [f"{module} stands in no rule"]
    if module.startswith("workloads.") and module.endswith(ORACLES):
        allowed = ("harness.core", "harness.score", "workloads.common", ".".join(module.split(".")[:-1]))
    forbidden = () if module.endswith(ORACLES) or module == "workloads.oracles" else rule(FORBIDDEN, module) or ()
    return [n for n in sorted(imports(path)) if not within(n, allowed) or within(n, forbidden)]


@pytest.mark.parametrize(("module", "path"), modules(), ids=[m for m, _ in modules()])
def test_a_module_imports_only_what_its_row_allows(module: str, path: Path) -> None:
    assert violations(module, path) == []


def test_the_rule_catches_a_planted_import(tmp_path: Path) -> None:
    planted = tmp_path / "m3_effects.py"
    planted.write_text("from harness.core.records import Finding\nimport workloads.codegen.oracle\n")
    assert violations("arms.mesh.m3_effects", planted) == [
        "harness.core.records.Finding",
        "workloads.codegen.oracle",
    ]


def test_only_score_reaches_the_oracles() -> None:
    reach = [m for m, path in modules() if within_any(imports(path), "workloads.oracles")]
    assert reach == ["harness.score"]


def within_any(names: set[str], prefix: str) -> bool:
    return any(within(name, (prefix,)) for name in names)


def test_running_a_trial_loads_no_oracle_and_no_numpy() -> None:
    code = """
import sys
from harness.pool import run_trial_sim
from harness.schedule import Limits, PlannedFault, TrialSpec
faults = (PlannedFault(fault="staging_crash", variant="effect_before"),)
spec = TrialSpec(schedule="s", index=0, workload="codegen", arm="mesh", world="sim", mode="tdd", variation=3, seed=1,
    fault_class="staging_crash", faults=faults, limits=Limits(), time_scale=1.0, settle_ms=0, idempotency_keys=False,
    pair="p", id="i")
assert run_trial_sim(spec).record.status == "ended"
import harness.live.child
bad = [m for m in sys.modules if m.endswith(".oracle") or m.split(".")[0] in ("numpy", "scipy", "matplotlib")]
assert not bad, bad
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_clock_and_rng_know_time_and_chance() -> None:
    banned = ("time.time(", "datetime.now", "import random", "from random", "np.random.seed")
    found = [
        f"{module}: {word}"
        for module, path in modules()
        for word in banned
        if module.startswith(
            ("harness.core", "harness.orchestrator", "harness.inject", "harness.trial", "arms", "faults")
        )
        and module not in ("harness.core.clock", "harness.core.rng")
        and word in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_no_arm_is_named_in_the_harness() -> None:
    found = [
        module
        for module, path in modules()
        if module.startswith("harness")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name | ast.Attribute)
        and (getattr(node.left, "id", "") == "arm" or getattr(node.left, "attr", "") == "arm")
        and any(isinstance(c, ast.Constant) and isinstance(c.value, str) for c in node.comparators)
    ]
    assert found == []


def test_every_file_of_a_registry_folder_is_listed() -> None:
    from faults import FAULTS
    from workloads import WORKLOADS

    files = {p.stem for p in (ROOT / "faults").glob("*.py")} - {"__init__", "common"}
    assert files == set(FAULTS)
    assert all(name == cls.name for name, cls in FAULTS.items())
    folders = {p.name for p in (ROOT / "workloads").iterdir() if (p / "task.py").exists()}
    assert folders == set(WORKLOADS)
