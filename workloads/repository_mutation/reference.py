"""A trial of a mended package in which everything happened as it should, and trials in which one thing did not.

Written down from the facts and not taken from a run, so that what the oracle is held against owes nothing to the
harness: `reference` it must accept exactly, each of `mutants` it must not.
"""

from __future__ import annotations

from msgspec.structs import replace

from harness.core.records import SealedTrial
from workloads.common.keys import sha256
from workloads.common.reference import (
    Broken,
    Effect,
    Files,
    chat_of,
    event_of,
    fetch_of,
    hook_of,
    mutants_of,
    push_of,
    row_of,
    sealed,
    tag_of,
    texts,
)
from workloads.repository_mutation import facts as instances
from workloads.repository_mutation import packages
from workloads.repository_mutation.facts import Facts, facts
from workloads.repository_mutation.oracle import blob
from workloads.repository_mutation.task import REPOSITORY_MUTATION

SEED = 20
LOCAL = "local_verification"


def effects(f: Facts) -> tuple[Effect, ...]:
    """The twelve of them, in the order of the delegations."""
    change, tag = f.ref("D"), tag_of("release", "acceptance", f.tag)
    released = _holding(push_of("release", "acceptance", "main", change), packages.tree(f.locked))
    return (
        fetch_of("mend", "test_preflight", "meshmoney", "1.2.0"),
        hook_of(f.hook_in, "implementation"),
        row_of("mend", LOCAL, "desk", "tickets", {"ticket_ref": f.ref("T"), "package": f.package}),
        event_of("mend", LOCAL, "repairs", "defect.mended", change, {"package": f.package}),
        push_of("mend", LOCAL, f.branch("mend"), change),
        fetch_of("review", "test_preflight", "meshunits", "2.0.1"),
        row_of("review", LOCAL, "desk", "reviews", {"review_ref": f.ref("V"), "package": f.package}),
        push_of("review", LOCAL, f.branch("review"), change),
        chat_of("review", "oracle_qualification", f"summary:{change}"),
        released,
        replace(tag, held={**tag.held, "tagged": released.held["new"]}),
        event_of("release", "acceptance", "releases", "release.published", f.tag, {"package": f.package}),
    )


def _holding(pushed: Effect, files: dict[str, str]) -> Effect:
    """A push after which the branch has these files."""
    return replace(pushed, held={**pushed.held, "blobs": {path: blob(text) for path, text in files.items()}})


def written(f: Facts) -> Files:
    """The files that each (delegation, phase) must leave, path to digest. What a scenario or manifest says is the
    agent's choice."""
    original = packages.tree(f.locked)
    files: Files = {
        ("mend", "implementation"): {m.path: sha256(original[m.path]) for m in f.mend},
        ("review", "implementation"): {m.path: sha256(original[m.path]) for m in f.review},
        ("mend", LOCAL): texts("mend/flow.json"),
        ("review", LOCAL): texts("review/flow.json"),
        ("review", "oracle_qualification"): texts("review/qualify.json"),
        ("release", "acceptance"): texts("release/flow.json"),
    }
    files[f.hook_in, "implementation"] |= texts(f"{f.hook_in}/manifest.json")
    return files


def reference(seed: int = SEED) -> SealedTrial:
    """The trial in which everything happened as it should, of the instance with this seed."""
    f = facts(seed)
    return sealed(REPOSITORY_MUTATION, seed, effects(f), written(f))


def mutants(seed: int = SEED) -> dict[str, SealedTrial]:
    """Trials that are the reference but for one thing, by what that is."""
    f, planted = facts(seed), instances.texts(facts(seed))
    broken = [
        Broken(one.operator, (component, "implementation"), one.path, planted[one.path])
        for component, own in (("mend", f.mend), ("review", f.review))
        for one in own
    ]
    found = mutants_of(REPOSITORY_MUTATION, seed, effects(f), written(f), broken)
    for one in f.planted:
        spoilt = packages.tree(f.locked) | {one.path: planted[one.path]}
        done = [_holding(e, spoilt) if e.held.get("ref") == "refs/heads/main" else e for e in effects(f)]
        found[f"main with {one.operator} in {one.path}"] = sealed(REPOSITORY_MUTATION, seed, done, written(f))
    elsewhere = [replace(e, held={**e.held, "tagged": "0" * 40}) if "tagged" in e.held else e for e in effects(f)]
    found["a tag elsewhere"] = sealed(REPOSITORY_MUTATION, seed, elsewhere, written(f))
    return found
