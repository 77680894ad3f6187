"""Schedules: a mistake is refused by file, line, value and what is legal; trials are a pure function of the rest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness import schedule_file
from harness.core.errors import ConfigError
from harness.schedule import Schedule, from_resolved, override, resolved, trials
from harness.schedule_file import Names

NAMES = Names(
    arms=("naive", "mesh", "journaled"),
    faults={"staging_crash": ("before_stage", "after_stage"), "hung_check": ("hung", "slow", "hung_after_work")},
    workloads=("codegen", "tree"),
)

GOOD = """\
schema: agentmesh-schedule/1
name: main
version: 1
seed: 7
world: live
time_scale: 0.05
workloads: {tree: 1, codegen: 3}
pairs: 12
arms:
  - naive
  - name: mesh
    pairs: 6
no_fault_twins: 2
faults_per_trial: 2
faults:
  mix:
    staging_crash: 1
    hung_check: {weight: 2, variants: [hung, slow]}
limits:
  nominal_ms: 5000
settle_ms: 100
"""


def load(text: str, folder: Path, names: Names = NAMES) -> Schedule:
    path = folder / "s.yaml"
    path.write_text(text)
    return schedule_file.load(path, names)


def good(folder: Path, **changes: object) -> Schedule:
    return replace(load(GOOD, folder), **changes)


def line_of(text: str, needle: str) -> int:
    return 1 + next(i for i, line in enumerate(text.splitlines()) if needle in line)


BAD = [
    # what is written, in place of what, where the message points, what it says
    ("nominal_ms: 5s", "nominal_ms: 5000", ["limits.nominal_ms is '5s'", "a number", "plain number"]),
    ("nominal_ms: 1e3", "nominal_ms: 5000", ["'1e3'", "a number", "plain number"]),
    ("nominal_ms: .inf", "nominal_ms: 5000", [".inf", "finite"]),
    ("nominal_ms: .nan", "nominal_ms: 5000", [".nan", "finite"]),
    ("nominal_ms: -1", "nominal_ms: 5000", ["limits.nominal_ms is -1", "above 0"]),
    ("deadline_ms: 5000", "nominal_ms: 5000", ["unknown key 'deadline_ms' in limits", "tokens"]),
    ("pairs: -3", "pairs: 12", ["pairs is -3", "a whole number from 1"]),
    ("pairs: 0", "pairs: 12", ["pairs is 0", "from 1"]),
    ("pairs: 12.5", "pairs: 12", ["pairs is 12.5", "a whole number"]),
    ("pairs: true", "pairs: 12", ["pairs is true", "a whole number"]),
    ("pairs: '12'", "pairs: 12", ["pairs is '12'", "a whole number", "plain number"]),
    ("pairs:", "pairs: 12", ["pairs is empty", "a whole number"]),
    ("pairs: [12]", "pairs: 12", ["pairs is [12]", "a whole number"]),
    ("seed: -1", "seed: 7", ["seed is -1", "from 0"]),
    ("seed: 99999999999999999999", "seed: 7", ["seed is 99999999999999999999"]),
    ("world: simulated", "world: live", ["world is 'simulated'", "live, sim"]),
    ("world: lives", "world: live", ["'lives'", "live, sim", "did you mean 'live'"]),
    ("time_scale: 0", "time_scale: 0.05", ["time_scale is 0", "above 0"]),
    ("settle_ms: -1", "settle_ms: 100", ["settle_ms is -1"]),
    ("pears: 12", "pairs: 12", ["unknown key 'pears'", "did you mean 'pairs'"]),
    ("version: one", "version: 1", ["version is 'one'", "a whole number"]),
    ("name: Main Run", "name: main", ["name is 'Main Run'", "a-z"]),
    ("name: ../up", "name: main", ["name is '../up'"]),
    ("  - nave", "  - naive", ["unknown arm 'nave'", "naive, mesh, journaled", "did you mean 'naive'"]),
    ("  - 5", "  - naive", ["arms[0] is 5", "text"]),
    ("  - name: naive", "  - name: mesh", ["arm 'naive' is listed twice"]),
    ("    pairs: 13", "    pairs: 6", ["arm 'mesh' has 13 pairs, and there are 12", "from 1 to 12"]),
    ("    pair: 6", "    pairs: 6", ["unknown key 'pair' in arms[1]", "did you mean 'pairs'"]),
    ("no_fault_twins: 13", "no_fault_twins: 2", ["no_fault_twins is 13", "from 0 to 12"]),
    ("faults_per_trial: -1", "faults_per_trial: 2", ["faults_per_trial is -1"]),
    ("    stage_crash: 1", "    staging_crash: 1", ["unknown fault 'stage_crash'", "hung_check", "staging_crash'?"]),
    ("    staging_crash: -1", "    staging_crash: 1", ["faults.mix.staging_crash is -1", "a number from 0"]),
    ("    staging_crash: much", "    staging_crash: 1", ["faults.mix.staging_crash is 'much'"]),
    ("variants: [hungry, slow]", "variants: [hung, slow]", ["unknown variant 'hungry' of 'hung_check'", "hung, slow"]),
    ("{codegne: 1}", "{tree: 1, codegen: 3}", ["unknown workload 'codegne'", "codegen, tree", "did you mean"]),
    ("{codegen: 0}", "{tree: 1, codegen: 3}", ["weights of workloads sum to 0", "above 0"]),
    ("workloads: {}", "workloads: {tree: 1, codegen: 3}", ["weights of workloads sum to 0"]),
    ("pairs: 12\npairs: 13", "pairs: 12", ["'pairs' is given twice", "first on line 8"]),
    ("schema: other/9", "schema: agentmesh-schedule/1", ["schema is 'other/9'", "agentmesh-schedule/1"]),
    ("12: 12", "pairs: 12", ["'12' cannot be a key", "text"]),
    ("[12]: 12", "pairs: 12", ["a list or mapping cannot be a key"]),
    ("seed: 9007199254740992", "seed: 7", ["a whole number from 0 to 9007199254740991"]),
    ("seed: 1:30", "seed: 7", ["seed is '1:30', which YAML reads as 90", "decimal digits"]),
    ("seed: 010", "seed: 7", ["seed is '010', which YAML reads as 8"]),
    ("seed: 0x10", "seed: 7", ["seed is '0x10', which YAML reads as 16"]),
    ("settle_ms: 1:30.5", "settle_ms: 100", ["which YAML reads as 90.5"]),
    (
        "settle_ms: 5000",
        "settle_ms: 100",
        ["settle_ms is 5000, and a trial ends after 5000", "below limits.nominal_ms"],
    ),
    ('name: "main\\n"', "name: main", ["name is 'main\\n'", "a-z"]),
    ("pairs: !!python/object:os.system 12", "pairs: 12", ["pairs cannot be read"]),
]


@pytest.mark.parametrize(("wrong", "right", "said"), BAD, ids=[case[0].strip().split("\n")[-1] for case in BAD])
def test_a_mistake_is_refused_by_line_value_and_what_is_legal(
    wrong: str, right: str, said: list[str], tmp_path: Path
) -> None:
    assert GOOD.count(right) == 1
    text = GOOD.replace(right, wrong)
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    message = str(caught.value)
    line = line_of(text, wrong.split("\n")[-1])
    assert message.startswith(f"{tmp_path / 's.yaml'}:{line}: "), message
    for part in said:
        assert part in message, message


@pytest.mark.parametrize(
    ("missing", "said"),
    [("seed: 7\n", "key 'seed' is missing"), ("schema: agentmesh-schedule/1\n", "key 'schema' is missing")],
)
def test_a_missing_key_is_named(missing: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load(GOOD.replace(missing, ""), tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n- b\n", "the document is"),
        ("just words\n", "the document is 'just words'"),
        ("name: [a\nseed: 3\n", "not valid YAML"),
        ("a: 1\n\tb: 2\n", ":2: this is not valid YAML"),
        ("a: &x 1\nb: *x\n", "through an alias"),
        ("a: &x [*x]\n", "through an alias"),
        ("<<: {a: 1}\n", "cannot be a key"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: \x07\n", "not valid YAML"),
        ("[" * 5000, "s.yaml"),
        ("? {a: 1}\n: 2\n", "cannot be a key"),
    ],
)
def test_what_is_no_mapping_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    assert said in str(caught.value)
    assert "s.yaml" in str(caught.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file: No such file"):
        schedule_file.load(tmp_path / "none.yaml", NAMES)
    with pytest.raises(ConfigError, match="cannot read the file: Is a directory"):
        schedule_file.load(tmp_path, NAMES)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        schedule_file.load(tmp_path / "latin.yaml", NAMES)
    (tmp_path / "big.yaml").write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match="too large"):
        schedule_file.load(tmp_path / "big.yaml", NAMES)
    with pytest.raises(ConfigError, match="too large"):
        schedule_file.load(Path("/dev/zero"), NAMES)
    (tmp_path / "number.yaml").write_text("schema: " + "9" * 5000)
    with pytest.raises(ConfigError, match="cannot be read as a value") as caught:
        schedule_file.load(tmp_path / "number.yaml", NAMES)
    assert len(str(caught.value)) < 300


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"([a-z:\[\]{}&*!|>'\"% -]|\n)*", fullmatch=True))
def test_no_text_whatever_escapes_as_another_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"s\.yaml"):
        schedule_file.draft(schedule_file.strict_yaml.parse(text, "s.yaml"))


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("{}", "neither mix nor exact"),
        ("{mix: {hung_check: 1}, exact: [{fault: hung_check}]}", "both mix and exact"),
        ("{mix: {hung_check: 0}}", "sum to 0"),
        ("{exact: [{fault: hung_chek}]}", "unknown fault 'hung_chek'"),
        ("{exact: [{fault: hung_check, variant: slwo}]}", "did you mean 'slow'"),
        ("{exact: [{fault: hung_check, visit: 0}]}", "faults.exact[0].visit is 0"),
        ("{exact: [[{fault: hung_check, moment: around}]]}", "before, after"),
        ("{exact: [hung_check]}", "faults.exact[0] is 'hung_check'"),
        ("{exact: [{variant: slow}]}", "key 'fault' is missing in faults.exact[0]"),
        ("{mix: {my.faults:Odd: 1}}", "variants of 'my.faults:Odd' are not known here"),
    ],
)
def test_faults_are_checked(faults: str, said: str, tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("faults:\n")]
    with pytest.raises(ConfigError) as caught:
        load(f"{head}faults: {faults}\n", tmp_path)
    assert said in str(caught.value)


def test_a_foreign_name_is_accepted_by_its_form(tmp_path: Path) -> None:
    text = GOOD.replace("  - naive", "  - my.arms:ODD").replace("{tree: 1, codegen: 3}", "{other:TASKS: 1}")
    text = text.replace("    staging_crash: 1", "    my.faults:Odd: {weight: 1, variants: [a]}")
    path = tmp_path / "s.yaml"
    path.write_text(text)
    draft = schedule_file.read(path)
    assert draft.foreign() == {"arms": ("my.arms:ODD",), "faults": ("my.faults:Odd",), "workloads": ("other:TASKS",)}
    schedule = schedule_file.resolve(draft, NAMES)
    assert schedule.mix["my.faults:Odd"].variants == ("a",)
    with pytest.raises(ConfigError, match=r"or module:name"):
        load(GOOD.replace("  - naive", "  - my arms:ODD"), tmp_path)


def test_the_registration_is_found_from_the_schedule_upwards(tmp_path: Path) -> None:
    (tmp_path / "deep" / "prereg").mkdir(parents=True)
    (tmp_path / "deep" / "prereg" / "k.yaml").write_text("id: x\n")
    path = tmp_path / "deep" / "s.yaml"
    for name in ("prereg/k.yaml", "deep/prereg/k.yaml"):
        found = schedule_file.registration(good(tmp_path, preregistration=name), path)
        assert found == tmp_path / "deep" / "prereg" / "k.yaml"
    assert schedule_file.registration(good(tmp_path), path) is None
    with pytest.raises(ConfigError, match=r"'none\.yaml' does not exist"):
        schedule_file.registration(good(tmp_path, preregistration="none.yaml"), path)


# --- trials -------------------------------------------------------------------------------------------------------


def test_arms_of_a_pair_differ_in_nothing_but_the_arm(tmp_path: Path) -> None:
    specs = trials(good(tmp_path))
    pairs: dict[str, list] = {}
    for spec in specs:
        pairs.setdefault(spec.pair, []).append(spec)
    assert len(pairs) == 12 + 2
    for members in pairs.values():
        assert len({spec.arm for spec in members}) == len(members)
        assert all(replace(spec, arm="", id="") == replace(members[0], arm="", id="") for spec in members)
    assert len({spec.id for spec in specs}) == len(specs)


def test_an_arm_with_fewer_pairs_takes_the_first_ones(tmp_path: Path) -> None:
    specs = [spec for spec in trials(good(tmp_path)) if not spec.twin]
    by_arm = {arm: [spec.index for spec in specs if spec.arm == arm] for arm in ("naive", "mesh")}
    assert by_arm == {"naive": list(range(12)), "mesh": list(range(6))}
    assert [spec.index for spec in specs] == sorted(spec.index for spec in specs), "pairs run one after the other"


def test_a_twin_is_the_same_trial_without_faults(tmp_path: Path) -> None:
    specs = trials(good(tmp_path))
    twins = [spec for spec in specs if spec.twin]
    assert [(spec.index, spec.fault_class, spec.variants) for spec in twins] == [(i, "none", ()) for i in (0, 0, 1, 1)]
    for twin in twins:
        real = next(s for s in specs if s.index == twin.index and s.arm == twin.arm and not s.twin)
        bare = {"faults": (), "fault_class": "", "twin": False, "id": "", "pair": ""}
        assert replace(real, **bare) == replace(twin, **bare)
        assert real.pair != twin.pair


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, (1 << 53) - 1), few=st.integers(1, 30), more=st.integers(0, 30), twins=st.integers(0, 5))
def test_a_longer_run_begins_with_the_shorter_one(seed: int, few: int, more: int, twins: int) -> None:
    schedule = _plain(seed=seed, no_fault_twins=twins)
    short, long = trials(override(schedule, pairs=few)), trials(override(schedule, pairs=few + more))
    assert [spec for spec in long if spec.index < few] == list(short)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, (1 << 53) - 1))
def test_an_arm_more_shifts_no_draw_of_the_others(seed: int) -> None:
    schedule = _plain(seed=seed)
    alone = {spec.id for spec in trials(override(schedule, arms=("naive",)))}
    assert alone < {spec.id for spec in trials(override(schedule, arms=("mesh", "naive", "journaled")))}


def test_draws_follow_the_weights_and_the_order_of_arms_is_drawn() -> None:
    schedule = _plain(pairs=4000)
    specs = trials(schedule)
    classes = Counter(spec.fault_class for spec in specs if spec.arm == "naive")
    assert 0.30 < classes["staging_crash"] / 4000 < 0.37
    variants = Counter(variant for spec in specs for variant in spec.variants if spec.fault_class == "hung_check")
    assert set(variants) == {"hung", "slow"}
    first = Counter(specs[i].arm for i in range(0, len(specs), 2))
    assert 0.45 < first["naive"] / 4000 < 0.55


def test_exact_faults_come_in_turn_and_compose(tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("faults:\n")]
    text = f"""{head}faults:
  exact:
    - {{fault: hung_check, variant: slow}}
    - - {{fault: staging_crash, variant: after_stage, visit: 2, phase: implementation}}
      - {{fault: hung_check}}
    - []
"""
    specs = [s for s in trials(load(text, tmp_path)) if s.arm == "naive" and not s.twin]
    assert [s.fault_class for s in specs[:4]] == ["hung_check", "staging_crash+hung_check", "none", "hung_check"]
    assert specs[0].variants == ("slow", "slow")
    assert specs[1].faults[0].pin == {"visit": 2, "phase": "implementation"}
    assert specs[1].variants[1] in NAMES.faults["hung_check"]
    assert specs[2].faults == ()


def test_no_faults_at_all(tmp_path: Path) -> None:
    schedule = load(GOOD.replace("faults_per_trial: 2", "faults_per_trial: 0"), tmp_path)
    assert {(spec.fault_class, spec.faults) for spec in trials(schedule)} == {("none", ())}


# --- identity and overrides ---------------------------------------------------------------------------------------


def test_the_resolved_schedule_is_one_text_and_comes_back(tmp_path: Path) -> None:
    schedule = load(GOOD, tmp_path)
    text, sha256 = resolved(schedule)
    again = from_resolved(text)
    assert again == schedule
    assert resolved(again) == (text, sha256)
    assert trials(again) == trials(schedule)
    spaced = yaml.safe_dump(dict(reversed(yaml.safe_load(GOOD).items())))
    assert resolved(load("# words\n" + spaced, tmp_path)) == (text, sha256), "layout, comments, order do not count"
    assert resolved(replace(schedule, jobs=5)) == (text, sha256)
    with pytest.raises(ConfigError, match="cannot be read"):
        from_resolved("{}")


@pytest.mark.parametrize("key", ["seed", "pairs", "variation", "mode", "settle_ms", "idempotency_keys", "version"])
def test_every_condition_counts_in_the_sha256(key: str, tmp_path: Path) -> None:
    schedule = load(GOOD, tmp_path)
    other = {"mode": "direct", "idempotency_keys": True, "version": 2, "pairs": 11}.get(key, 5)
    changed = replace(schedule, **{key: other})
    assert resolved(changed)[1] != resolved(schedule)[1]
    assert (trials(changed)[0].id == trials(schedule)[0].id) is (key == "pairs")


def test_overrides_make_another_schedule(tmp_path: Path) -> None:
    schedule = load(GOOD, tmp_path)
    changed = override(schedule, pairs=4, seed=9, arms=("mesh", "journaled"), world="sim")
    assert (changed.pairs, changed.seed, changed.world, changed.time_scale) == (4, 9, "sim", 1.0)
    assert [(arm.name, arm.pairs) for arm in changed.arms] == [("mesh", 4), ("journaled", None)]
    assert resolved(changed)[1] != resolved(schedule)[1]
    assert override(schedule) == schedule
    longer = override(schedule, pairs=100)
    assert Counter(s.arm for s in trials(longer) if not s.twin) == {"naive": 100, "mesh": 6}
    assert override(changed, world="live", live_time_scale=0.05).time_scale == 0.05


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"pairs": 0}, "--pairs is 0"),
        ({"pairs": -4}, "--pairs is -4"),
        ({"seed": -1}, "--seed is -1"),
        ({"arms": ()}, "--arms"),
        ({"arms": ("naive", "naive")}, "each once"),
        ({"world": "liev"}, "did you mean 'live'"),
    ],
)
def test_bad_overrides_are_refused(given_: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        override(load(GOOD, tmp_path), **given_)


def test_the_json_schema_knows_the_form() -> None:
    schema = schedule_file.json_schema()
    form = schema["$defs"]["ScheduleFile"]
    assert form["additionalProperties"] is False
    assert {"workloads", "arms", "faults", "seed", "pairs"} <= set(form["required"])
    msgspec.json.encode(schema)


def _plain(**changes: object) -> Schedule:
    text = {
        "schema": "agentmesh-schedule/1",
        "name": "plain",
        "version": 1,
        "seed": 1,
        "pairs": 10,
        "workloads": {"codegen": 1},
        "arms": ["naive", "mesh"],
        "faults": {"mix": {"staging_crash": 1, "hung_check": {"weight": 2, "variants": ["hung", "slow"]}}},
    }
    document = schedule_file.strict_yaml.parse(yaml.safe_dump(text), "plain.yaml")
    return replace(schedule_file.resolve(schedule_file.draft(document), NAMES), **changes)


def test_a_further_variant_is_struck_only_where_it_is_named(tmp_path: Path) -> None:
    names = replace(NAMES, further={"hung_check": ("rare",)})
    listed = "{weight: 2, variants: [hung, slow]}"
    assert load(GOOD.replace(listed, "2"), tmp_path, names).mix["hung_check"].variants == NAMES.faults["hung_check"]
    rare = GOOD.replace(listed, "{weight: 2, variants: [rare]}")
    assert load(rare, tmp_path, names).mix["hung_check"].variants == ("rare",)
    with pytest.raises(ConfigError, match="unknown variant 'rare'"):
        load(rare, tmp_path)
