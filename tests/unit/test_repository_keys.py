"""The repository boundary as judges, arms and faults know it: natural keys, identity, references and cuts."""

import pytest
from msgspec.structs import replace

from arms.mesh.identity import content
from faults.network_partition import NetworkPartition
from harness.core.roles import Cut
from harness.core.types import BOUNDARIES, EffectCall, Seam, Site
from harness.metrics.effects import PRIMARY_BOUNDARIES
from workloads.common.declare import PUSH, TAG, effect_site
from workloads.common.keys import natural_keys
from workloads.common.reference import _others, push_of, tag_of

MOVED = push_of("a", "acceptance", "fix/1", "D-7").payload


def call(operation="push", **changes):
    return EffectCall(
        site=Site(delegation="a", phase="acceptance", seam=Seam.TOOL, name="repository"),
        call_id="e1",
        attempt=1,
        turn=0,
        index=0,
        ordinal=0,
        cause="t",
        origin="flow",
        boundary="repository",
        operation=operation,
        target="origin",
        payload={**MOVED, **changes},
    )


def test_the_repository_is_a_primary_boundary():
    assert BOUNDARIES == ("transport", "database", "registry", "provider", "repository", "hook")
    assert "repository" in PRIMARY_BOUNDARIES


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"ref": "refs/heads/fix/1", "message": "x\n\nChange-Ref: D-7\n"}, ("refs/heads/fix/1/D-7",)),
        ({"ref": "refs/heads/main", "message": "x\n\nSigned-off-by: a\nChange-Ref:  D-7 \n"}, ("refs/heads/main/D-7",)),
        ({"ref": "refs/heads/main", "message": "x\n"}, ()),
        ({"ref": "refs/heads/main", "message": None}, ()),
        ({"ref": "refs/tags/v1.0", "message": ""}, ("refs/tags/v1.0",)),
        ({"ref": "refs/notes/x", "message": "x\n\nChange-Ref: D-7\n"}, ()),
        ({}, ()),
    ],
)
def test_natural_keys_are_equal_for_a_call_and_for_what_the_remote_holds(fields, keys):
    assert natural_keys({"boundary": "repository", "remote": "origin", **fields}) == keys
    assert natural_keys({"boundary": "repository", "target": "origin", "payload": fields}) == keys


def test_a_reference_effect_has_one_key_and_every_other_another():
    for effect, key in (
        (push_of("a", "p", "main", "D-7"), "refs/heads/main/D-7"),
        (tag_of("a", "p", "v1"), "refs/tags/v1"),
    ):
        held = {"boundary": "repository", **effect.held}
        assert natural_keys(held) == (key,)
        others = dict(_others(effect))
        assert len(others) == (3 if effect.operation == "push" else 1)
        assert all(natural_keys({"boundary": "repository", **one.held}) != (key,) for one in others.values())


def test_dates_change_the_objects_and_not_the_effect():
    later = call(old="1" * 40, new="2" * 40)
    assert content(call(), PUSH) == content(later, PUSH)
    assert content(call("tag"), TAG) == content(replace(later, operation="tag"), TAG)
    assert content(call(), PUSH) != content(call(tree="3" * 40), PUSH)
    assert content(call(), PUSH) != content(call(message="x\n\nChange-Ref: D-8\n"), PUSH)
    assert content(call(), PUSH) != content(call(ref="refs/heads/main"), PUSH)


@pytest.mark.parametrize("variant", NetworkPartition.further)
def test_a_partition_cuts_the_way_to_the_remote(variant):
    site = effect_site("a", "acceptance", "repository", "flow", visits=2)
    fault = NetworkPartition.plan(variant, 0, (site,), lambda name, n: n - 1)
    assert isinstance(fault.decided, Cut)
    assert (fault.decided.how, fault.decided.stream) == (variant.partition("_")[2], "downstream")
    assert (fault.strike.name, fault.strike.visit, fault.strike.check) == ("repository", 2, "flow")
    assert not set(NetworkPartition.further) & set(NetworkPartition.variants)
