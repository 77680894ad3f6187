"""Checks and hooks as real processes: what they report, how they hang, break and lie; and nothing outlives them."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from harness.core.errors import HarnessBug
from harness.core.types import CheckSpec
from harness.world.live.checkkit.external import node_binary, read_tap
from harness.world.live.checks import CheckRunner, addresses
from harness.world.live.registry import RegistryService
from harness.world.live.zygote import start_zygote

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

PASSING = "def test_a(): pass\ndef test_b(): pass\n"
FAILING = """\
import pytest
@pytest.fixture
def broken(): raise OSError
def test_good(): print("seen")
def test_setup(broken): pass
class TestThing:
    def test_bad(self): assert [1, 2] == [1, 3]
"""
NODE_PASSING = "const test = require('node:test'); test('one', () => {}); test('two', () => {});\n"
NODE_FAILING = """\
import test, {describe, it} from 'node:test'; import assert from 'node:assert';
test('fine', () => {});
test('outer', async (t) => { await t.test('inner', () => assert.equal(1, 2)); await t.test('other', () => {}); });
describe('suite', () => { it('breaks', () => { throw new Error('no'); }); it('works', () => {}); });
test('todo', {todo: true}, () => assert.fail());
"""
SLEEPING = "import time\ndef test_sleep():\n    time.sleep(600)\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zygote(tmp_path_factory):
    folder = tmp_path_factory.mktemp("z")
    server = await start_zygote(folder / "s")
    yield server
    await server.stop()
    assert list(folder.iterdir()) == []
    assert not alive(server.process.pid)


@pytest.fixture
def runner(zygote, request):
    return CheckRunner(zygote.socket_path, tag=request.node.name)


@pytest.fixture
def workspace(tmp_path):
    def write(**files):
        for name, text in files.items():
            tmp_path.joinpath(name.replace("__", ".")).write_text(text)
        return tmp_path

    return write


def spec(kind, target):
    return CheckSpec(name="unit", kind=kind, target=target)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def group(pgid):
    """Living members of a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[2]) == pgid and alive(entry.name):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def until(condition, seconds=10):
    for _ in range(int(seconds * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


# --- verdicts -----------------------------------------------------------------------------------------------------


async def test_a_passing_check_passes_and_leaves_the_workspace_alone(runner, workspace):
    place = workspace(t_test__py=PASSING)
    results = [await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait() for _ in range(2)]
    assert [(r.passed, r.failing, r.exit_status, r.signal, r.monitor_error) for r in results] == [
        (True, (), 0, None, False)
    ] * 2
    assert results[0].output_tail == results[1].output_tail == "..\n"
    assert os.listdir(place) == ["t_test.py"]


async def test_a_failing_check_names_what_failed(runner, workspace):
    place = workspace(t_test__py=FAILING)
    result = await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait()
    assert result.failing == ("t_test.py::test_setup", "t_test.py::TestThing::test_bad")
    assert (result.passed, result.exit_status) == (False, 1)
    assert "seen" in result.output_tail
    assert "assert [1, 2] == [1, 3]" in result.output_tail


@pytest.mark.parametrize(
    ("text", "failing"), [("import nothing_like_it", "t_test.py"), ("x = 1", "t_test.py"), (None, "t_test.py")]
)
async def test_a_file_without_tests_that_can_run_is_what_failed(runner, workspace, text, failing):
    place = workspace(**({"t_test__py": text} if text else {}))
    result = await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait()
    assert (result.passed, result.failing, result.monitor_error) == (False, (failing,), False)


async def test_configuration_outside_of_the_workspace_is_ignored(runner, workspace):
    place = workspace(pytest__ini="[pytest]\naddopts = --no-such-option\n", conftest__py="raise OSError\n")
    inner = place / "inner"
    inner.mkdir()
    (inner / "t_test.py").write_text(PASSING)
    result = await (await runner.start(spec("pytest", "t_test.py"), inner, {})).wait()
    assert result.passed, result.output_tail


async def test_node_checks_pass_and_name_the_leaves_that_failed(runner, workspace):
    place = workspace(a__cjs=NODE_PASSING, b__mjs=NODE_FAILING)
    passed = await (await runner.start(spec("node", "a.cjs"), place, {})).wait()
    assert (passed.passed, passed.failing) == (True, ())
    failed = await (await runner.start(spec("node", "b.mjs"), place, {})).wait()
    assert failed.failing == ("b.mjs::outer::inner", "b.mjs::suite::breaks")
    assert "duration_ms" not in failed.output_tail
    broken = await (await runner.start(spec("node", "none.mjs"), place, {})).wait()
    assert broken.failing == ("none.mjs",)


async def test_tap_of_a_runner_is_read_by_its_indentation():
    text = "# Subtest: a\n    # Subtest: b\n    ok 1 - b\n    1..1\nnot ok 1 - a\nnot ok 2 - c # SKIP\nok 3 - d"
    assert read_tap(text.splitlines(), "f") == ((), 3)
    assert Path(node_binary()).is_file()


async def test_installs_fetch_every_time_and_check_hashes(runner, workspace):
    seen = []
    registry = RegistryService(lambda *fact: seen.append(fact[2]["file"]))
    port = await registry.start()
    await registry.open("n")
    env = {"REGISTRY_URL": f"http://127.0.0.1:{port}/n/simple/"}
    lines = registry.lock_lines(["meshprice"])
    place = workspace(good__lock="\n".join(lines), bad__lock="\n".join(line[:-4] + "0000" for line in lines))
    for _ in range(2):
        result = await (await runner.start(spec("install", "good.lock"), place, env)).wait()
        assert result.passed, result.output_tail
        assert result.output_tail == "+ meshmoney==1.2.0\n+ meshprice==0.3.0\n+ meshunits==2.0.1\n"
    assert sorted(seen) == sorted(
        2 * [f"mesh{n}-py3-none-any.whl" for n in ("money-1.2.0", "price-0.3.0", "units-2.0.1")]
    )
    (place / "loose.lock").write_text("meshmoney==1.2.0")
    assert not (await (await runner.start(spec("install", "loose.lock"), place, env)).wait()).passed
    result = await (await runner.start(spec("install", "bad.lock"), place, env)).wait()
    await registry.stop()
    assert (result.passed, result.failing) == (False, ("bad.lock",))
    assert str(port) not in result.output_tail
    assert sorted(os.listdir(place)) == ["bad.lock", "good.lock", "loose.lock"]


# --- the four knobs -----------------------------------------------------------------------------------------------

GOOD = {"pytest": "good_test.py", "node": "good.cjs", "install": "good.lock"}
BAD = {"pytest": "bad_test.py", "node": "bad.mjs", "install": "bad.lock"}


@pytest.fixture
def all_kinds(workspace):
    """Checks that pass and fail, of every kind; an empty lock file installs nothing, successfully."""
    workspace(good_test__py=PASSING, bad_test__py=FAILING, good__cjs=NODE_PASSING, bad__mjs=NODE_FAILING)
    return workspace(good__lock="# nothing\n", bad__lock="nothing==1 --hash=sha256:" + "0" * 64)


ENV = {"REGISTRY_URL": "http://127.0.0.1:9/simple/"}


@pytest.mark.parametrize("kind", GOOD)
async def test_a_flipped_coin_turns_the_verdict_of_the_process(runner, all_kinds, kind):
    good = await (await runner.start(spec(kind, GOOD[kind]), all_kinds, ENV, coin="flip")).wait()
    assert (good.passed, good.failing, good.exit_status) == (False, (GOOD[kind],), 1)
    assert good.came_to is True
    assert GOOD[kind] in good.output_tail
    bad = await (await runner.start(spec(kind, BAD[kind]), all_kinds, ENV, coin="flip")).wait()
    assert (bad.passed, bad.failing, bad.exit_status, bad.monitor_error) == (True, (), 0, False)
    assert bad.came_to is False
    assert set(bad.output_tail.strip()) == {"."}


@pytest.mark.parametrize("kind", GOOD)
async def test_a_raising_coin_breaks_the_runner(runner, all_kinds, kind):
    result = await (await runner.start(spec(kind, GOOD[kind]), all_kinds, ENV, coin="raise")).wait()
    assert (result.passed, result.failing, result.exit_status, result.monitor_error) == (False, (), 3, True)
    assert result.came_to is True
    assert "INTERNALERROR> BrokenRunner: " in result.output_tail
    assert "harness" not in result.output_tail


async def test_a_runner_that_breaks_by_itself_looks_the_same(runner, workspace):
    place = workspace(conftest__py="def pytest_runtest_logfinish(): raise KeyError('x')\n", t_test__py=PASSING)
    result = await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait()
    assert (result.passed, result.failing, result.exit_status, result.monitor_error) == (False, (), 3, True)
    assert result.came_to is None
    assert "INTERNALERROR> BrokenRunner: " in result.output_tail


@pytest.mark.parametrize("kind", GOOD)
async def test_held_after_its_work_a_check_ends_when_it_is_continued(runner, all_kinds, kind):
    running = await runner.start(spec(kind, GOOD[kind]), all_kinds, ENV, hold="after")
    await until(lambda: running.state() == "T")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.wait(), 0.1)
    assert running.state() == "T", "whoever waits and gives up does nothing to the check"
    running.cont()
    assert (await running.wait()).passed


async def test_held_before_its_work_a_check_has_done_nothing(runner, workspace):
    place = workspace(t_test__py="def test_mark(): open('mark', 'w').close()\n")
    running = await runner.start(spec("pytest", "t_test.py"), place, {}, hold="before")
    await until(lambda: running.state() == "T")
    assert not (place / "mark").exists()
    running.cont()
    assert (await running.wait()).passed
    assert (place / "mark").exists()


@pytest.mark.parametrize("kind", GOOD)
async def test_a_paced_check_is_slow_and_shows_progress(runner, all_kinds, kind):
    running = await runner.start(spec(kind, GOOD[kind]), all_kinds, ENV, pace_ms=400)
    seen = set()
    result = None
    while result is None:
        seen.add(running.progress())
        try:
            result = await asyncio.wait_for(running.wait(), 0.05)
        except TimeoutError:
            continue
    assert result.passed
    assert result.duration_s >= 0.4
    assert len(seen) >= 4
    assert result.output_tail.startswith("....")


async def test_progress_counts_output_and_effects(runner, workspace):
    place = workspace(t_test__py="def test_a(): print('x' * 99)\n")
    running = await runner.start(spec("pytest", "t_test.py"), place, {}, hold="after")
    await until(lambda: running.state() == "T")
    before = running.progress()
    running.bump()
    assert running.progress() == before + 1 >= 101
    running.cont()
    await running.wait()
    assert running.progress() == before + 1


# --- processes ----------------------------------------------------------------------------------------------------


async def test_kill_takes_the_whole_group(runner, workspace):
    spawn = "import subprocess\ndef test_a():\n    subprocess.run(['sleep', '600'])\n"
    running = await runner.start(spec("pytest", "t_test.py"), workspace(t_test__py=spawn), {})
    await until(lambda: len(group(running.pid)) == 2)
    running.kill()
    result = await running.wait()
    assert (result.passed, result.signal, result.exit_status, result.monitor_error) == (False, 9, None, False)
    await until(lambda: group(running.pid) == [])
    assert running.state() == ""
    running.kill()


async def test_what_a_check_leaves_behind_ends_with_it(runner, workspace):
    spawn = "import subprocess\ndef test_a():\n    subprocess.Popen(['sleep', '600'])\n"
    running = await runner.start(spec("pytest", "t_test.py"), workspace(t_test__py=spawn), {})
    assert (await running.wait()).passed
    await until(lambda: group(running.pid) == [])


@pytest.mark.parametrize("ending", ["kill", "end"])
async def test_temporary_files_go_with_the_check(runner, zygote, workspace, ending):
    place = workspace(t_test__py="def test_a(tmp_path): (tmp_path / 'f').touch(); print(tmp_path)\n")
    running = await runner.start(spec("pytest", "t_test.py"), place, {}, hold="after")
    await until(lambda: running.state() == "T")
    scratch = Path(zygote.socket_path + ".d", str(running.pid))
    assert len(list(scratch.rglob("f"))) == 1
    running.kill() if ending == "kill" else running.cont()
    result = await running.wait()
    assert not scratch.exists()
    assert result.output_tail.startswith("$TMPDIR/pytest-of-")


async def test_stop_and_cont_reach_the_real_process_too(runner, workspace):
    place = workspace(a__cjs="require('node:test')('long', () => new Promise(r => setTimeout(r, 600000)));")
    running = await runner.start(spec("node", "a.cjs"), place, {})
    await until(lambda: len(group(running.pid)) == 2)
    running.stop()

    def states():
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in group(running.pid)}

    await until(lambda: states() == {"T"})
    assert running.state() == "T"
    running.cont()
    await until(lambda: states() == {"S"})
    running.kill()
    assert (await running.wait()).signal == signal.SIGKILL
    await until(lambda: group(running.pid) == [])


async def test_dozens_run_at_once(runner, workspace):
    place = workspace(t_test__py="import os\ndef test_a(): print(os.environ['N'])\n", a__cjs=NODE_PASSING)
    started = [await runner.start(spec("pytest", "t_test.py"), place, {"N": f"n{n}"}, hold="after") for n in range(40)]
    await until(lambda: all(running.state() == "T" for running in started), 30)
    assert len({running.pid for running in started}) == 40
    for running in started:
        running.cont()
    results = await asyncio.gather(*(running.wait() for running in started))
    assert [result.output_tail for result in results] == [f"n{n}\n.\n" for n in range(40)]
    assert await runner.listing() == []


async def test_checkpoints_of_all_processes_of_a_check_are_reported_in_each_run_anew(runner, workspace):
    source = """\
import json, os, subprocess, sys
SAY = "import json, os; open(os.environ['CHECKPOINTS'], 'a').write(json.dumps(['c', 's', {!r}]) + chr(10))"
def test_a():
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", SAY.format(name)], check=True)
    open(os.environ["CHECKPOINTS"], "a").write('["c", "s", {"payload": 1}]' + chr(10) + '["c", "s", "cut')
"""
    place = workspace(t_test__py=source)
    for _ in range(2):
        result = await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait()
        assert (result.passed, result.checkpoints) == (True, (["c", "s", "one"], ["c", "s", "two"]))
    quiet = await (
        await runner.start(spec("pytest", "q_test.py"), workspace(q_test__py="def test_a(): pass\n"), {})
    ).wait()
    assert quiet.checkpoints == ()


async def test_a_check_gets_its_environment_and_nothing_of_ours(runner, workspace):
    show = """\
import os, sys, sqlhttp, redis
print(sorted(name for name in os.environ if name not in ('PATH', 'TMPDIR', 'CHECKPOINTS', 'DOUBTS')),
      os.getcwd() == sys.path[0], sys.argv[1:])
for name in ('harness', 'arms', 'workloads'):
    try: __import__(name); print('leak', name)
    except ImportError: pass
print(sorted(map(int, os.listdir('/proc/self/fd'))), sys.stdin.read() == '')
"""
    result = await runner.run_script(workspace(show__py=show), "show.py", {"A": "1"}, ["x.py"])
    assert result.output_tail.splitlines()[0] == "['A'] True ['x.py']", result.output_tail
    assert "leak" not in result.output_tail
    assert len(result.output_tail.splitlines()[1].split(",")) <= 6, "only its streams, its result and the listing"
    assert result.output_tail.endswith("True\n")


@pytest.mark.parametrize(
    ("text", "passed", "status"),
    [
        ("print('done')", True, 0),
        ("import sys; sys.exit(0)", True, 0),
        ("import sys; sys.exit(7)", False, 1),
        ("import sys; sys.exit('bad input')", False, 1),
        ("1 / 0", False, 1),
    ],
)
async def test_a_hook_passes_unless_it_fails(runner, workspace, text, passed, status):
    result = await runner.run_script(workspace(hook__py=text), "hook.py", {})
    assert (result.passed, result.exit_status, result.failing) == (passed, status, () if passed else ("hook.py",))


async def test_a_hook_that_is_cancelled_is_killed(runner, workspace):
    task = asyncio.ensure_future(runner.run_script(workspace(hook__py="import time; time.sleep(600)"), "hook.py", {}))
    await asyncio.sleep(0.2)
    pids = [row["pid"] for row in await runner.listing()]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) == 1
    await until(lambda: not alive(pids[0]))


async def test_addresses_of_this_machine_are_taken_out_of_the_output():
    env = {"REGISTRY_URL": "http://127.0.0.1:8123/t/abc/simple/", "TRANSPORT_URL": "redis://:abc@127.0.0.1:99?x=1"}
    text = "in /w/s/t.py: http://127.0.0.1:8123/t/abc/simple/foo/ and 127.0.0.1:99 at /w/s"
    for found, name in addresses("/w/s", env).items():
        text = text.replace(found, name)
    assert text == "in t.py: $REGISTRY_URLfoo/ and $TRANSPORT_URL at ."


# --- who ends whom ------------------------------------------------------------------------------------------------


async def test_orphans_of_an_orchestrator_live_on_until_they_are_ended(runner, zygote, workspace):
    place = workspace(t_test__py=SLEEPING)
    other = await CheckRunner(zygote.socket_path, tag="other").start(spec("pytest", "t_test.py"), place, {})
    code = f"""
import asyncio, os
from harness.core.types import CheckSpec
from harness.world.live.checks import CheckRunner
async def main():
    spec = CheckSpec(name="c", kind="pytest", target="t_test.py")
    running = await CheckRunner({zygote.socket_path!r}, tag={runner._tag!r}).start(spec, {str(place)!r}, {{}})
    print(running.pid, flush=True)
    await running.wait()
asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    orchestrator = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe)
    pid = int(await orchestrator.stdout.readline())
    orchestrator.kill()
    await orchestrator.wait()
    await asyncio.sleep(0.1)
    assert alive(pid)
    assert await runner.end_all() == 1
    assert not alive(pid)
    assert alive(other.pid)
    other.kill()
    await other.wait()


async def test_the_fork_server_survives_everything_happening_at_once(runner, zygote, workspace):
    place = workspace(t_test__py=SLEEPING)
    checks = [await runner.start(spec("pytest", "t_test.py"), place, {}) for _ in range(6)]
    peer = await runner._ask({"op": "list"})
    assert len((await runner._answer(peer))["checks"]) == 6
    zygote.process.send_signal(signal.SIGSTOP)
    peer.send(json.dumps({"op": "end", "tag": runner._tag}).encode())
    for running in checks[:4]:
        running.kill()
    for running in checks[2:]:  # as when an orchestrator is killed
        running._loop.remove_reader(running._peer)
        running._peer.close()
    await until(lambda: not any(alive(running.pid) for running in checks[:4]))
    zygote.process.send_signal(signal.SIGCONT)
    assert (await runner._answer(peer))["ended"] >= 2
    peer.close()
    assert await runner.listing() == []
    assert not any(alive(running.pid) for running in checks)
    assert (await checks[0].wait()).signal == signal.SIGKILL


@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGTERM])
async def test_the_fork_server_and_its_checks_end_with_their_owner(tmp_path, killed):
    (tmp_path / "t_test.py").write_text("import subprocess\ndef test_a():\n    subprocess.run(['sleep', '600'])\n")
    code = f"""
import asyncio
from harness.core.types import CheckSpec
from harness.world.live.checks import CheckRunner
from harness.world.live.zygote import start_zygote
async def main():
    zygote = await start_zygote({str(tmp_path / "s")!r})
    spec = CheckSpec(name="c", kind="pytest", target="t_test.py")
    running = await CheckRunner(zygote.socket_path).start(spec, {str(tmp_path)!r}, {{}})
    print(zygote.process.pid, running.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe)
    server, check = map(int, (await owner.stdout.readline()).split())
    await until(lambda: len(group(check)) == 2)
    owner.send_signal(killed)
    await owner.wait()
    await until(lambda: not alive(server))
    await until(lambda: group(check) == [])
    assert os.listdir(tmp_path) == ["t_test.py"]


async def test_a_check_server_that_dies_is_our_fault_and_takes_its_checks_along(tmp_path):
    (tmp_path / "t_test.py").write_text(SLEEPING)
    server = await start_zygote(tmp_path / "s")
    runner = CheckRunner(server.socket_path)
    running = await runner.start(spec("pytest", "t_test.py"), tmp_path, {})
    server.process.kill()
    with pytest.raises(HarnessBug):
        await running.wait()
    await until(lambda: not alive(running.pid))
    await server.stop()
    with pytest.raises(HarnessBug):
        await runner.start(spec("pytest", "t_test.py"), tmp_path, {})


async def test_a_forked_check_costs_less_than_a_tenth_of_a_core_second(runner, workspace):
    place = workspace(t_test__py=PASSING)
    costs = [(await (await runner.start(spec("pytest", "t_test.py"), place, {})).wait()).cpu_s for _ in range(5)]
    assert min(costs) <= 0.1
