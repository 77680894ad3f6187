"""The judge of mended packages: the twelve intended effects, and that every file is again what its authors wrote.

How its effects are recognised stands in `workloads.common.keys`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from harness.core.records import Intent
from harness.core.types import Json
from workloads.common.keys import natural_keys, sha256
from workloads.repository_mutation import packages
from workloads.repository_mutation.facts import facts

SCENARIOS = ("mend/flow.json", "review/flow.json", "review/qualify.json", "release/flow.json")
"""Files that must be there; what they say is the agent's choice, and shows in the effects."""


def blob(text: str) -> str:
    """The name that git gives to the content of a file."""
    content = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class RepositoryMutationOracle:
    """See `harness.core.records.Oracle`."""

    proofs: tuple[str, ...] = ("suite", "acceptance")

    def intents(self, seed: int, variation: int) -> tuple[Intent, ...]:
        """The twelve effects of one instance."""
        f = facts(seed)
        local, change = "local_verification", f.ref("D")
        table = (
            ("registry", "meshmoney==1.2.0", "mend", "test_preflight"),
            ("transport", f"repairs/defect.mended/{change}", "mend", local),
            ("database", f"desk.tickets/{f.ref('T')}", "mend", local),
            ("repository", f"refs/heads/{f.branch('mend')}/{change}", "mend", local),
            ("registry", "meshunits==2.0.1", "review", "test_preflight"),
            ("database", f"desk.reviews/{f.ref('V')}", "review", local),
            ("repository", f"refs/heads/{f.branch('review')}/{change}", "review", local),
            ("provider", f"summary:{change}", "review", "oracle_qualification"),
            ("repository", f"refs/heads/main/{change}", "release", "acceptance"),
            ("repository", f"refs/tags/{f.tag}", "release", "acceptance"),
            ("transport", f"releases/release.published/{f.tag}", "release", "acceptance"),
            ("hook", f"publish_manifest/{f.hook_in}/manifest.json", f.hook_in, "implementation"),
        )
        return tuple(
            Intent(boundary=boundary, key=key, required=1, delegation=delegation, phase=phase)
            for boundary, key, delegation, phase in table
        )

    def natural_keys(self, effect: dict[str, Json]) -> tuple[str, ...]:
        """The keys that an effect carries, one per occurrence; none when it cannot be recognised."""
        return natural_keys(effect)

    def kept(self, seed: int, variation: int, effects: Sequence[dict[str, Json]]) -> bool:
        """Whether `main` ends at the package as its authors wrote it, and the release is a tag on such a commit."""
        f = facts(seed)
        moves = [effect for effect in effects if effect["boundary"] == "repository"]
        pushed = [move for move in moves if move["ref"] == "refs/heads/main"]
        tagged = [move["tagged"] for move in moves if move["ref"] == f"refs/tags/{f.tag}"]
        wanted = {path: blob(text) for path, text in packages.tree(f.locked).items()}
        whole = [move["new"] for move in pushed if wanted.items() <= move["blobs"].items()]
        return bool(whole and tagged) and pushed[-1]["new"] in whole and tagged[-1] in whole

    def accepted(self, seed: int, variation: int, files: dict[str, str]) -> bool:
        """Whether the mended files, and all others of the package that anybody could change, are the original ones, and
        the files that the effects came from are there."""
        f = facts(seed)
        original = {path: sha256(text) for path, text in packages.tree(f.locked).items()}
        untouched = all(files.get(path, digest) == digest for path, digest in original.items())
        present = {*SCENARIOS, f"{f.hook_in}/manifest.json", *(m.path for m in f.planted)}
        return untouched and present <= files.keys()


ORACLE = RepositoryMutationOracle()
