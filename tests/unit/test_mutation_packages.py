"""The cache of packages: fetched by a real pip from a folder, checked at every use, mended when it is spoilt."""

from __future__ import annotations

import hashlib
import io
import platform
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.core.errors import ConfigError
from workloads.repository_mutation import matrix, packages
from workloads.repository_mutation.operators import applied
from workloads.repository_mutation.packages import Package
from workloads.repository_mutation.prepare import prepare

FILES = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "meshtiny"\nversion = "0.1"\n[tool.setuptools]\npackages = []\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: meshtiny\nVersion: 0.1\n",
    "src/tiny/__init__.py": "",
    "src/tiny/sums.py": "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return add(a, a)\n",
    "src/tiny/loops.py": "from tiny.sums import add\n\n\ndef count(n):\n    i = 0\n    while i < n:\n"
    "        i += 1\n    return add(i, 0)\n",
    "tests/test_sums.py": "from tiny.sums import add, twice\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\n"
    "def test_twice():\n    assert twice(2) == 4\n",
    "tests/test_loops.py": "from tiny.loops import count\n\n\ndef test_count():\n    assert count(3) == 3\n",
    "docs/long.txt": "not wanted",
}


def archived(files: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"meshtiny-0.1/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the index pip has, and an empty cache. Isolated builds would need an index of their own."""
    place = tmp_path / "shelf"
    place.mkdir()
    monkeypatch.setenv("AGENTMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it as its option's value: no isolation
    return place


def on_the_shelf(shelf: Path, files: dict[str, str] | None = None) -> Package:
    raw = archived(files or FILES)
    (shelf / "meshtiny-0.1.tar.gz").write_bytes(raw)
    return Package(
        name="meshtiny",
        version="0.1",
        sha256=hashlib.sha256(raw).hexdigest(),
        sources=("tiny/*.py",),
        tests=("tests/test_*.py",),
        target="tests",
    )


def in_the_cache(shelf: Path, files: dict[str, str] | None = None) -> Package:
    """As it is after a fetch, without the time that pip takes."""
    package = on_the_shelf(shelf, files)
    packages.write(cached(package), archived(files or FILES))
    return package


def cached(package: Package) -> Path:
    return packages.folder(package) / "sdist.tar.gz"


def test_a_package_is_fetched_once_and_then_used_without_an_index(shelf: Path) -> None:
    package = on_the_shelf(shelf)
    packages.fetch(package)
    (shelf / "meshtiny-0.1.tar.gz").unlink()
    packages.fetch(package)
    wanted = {path.removeprefix("src/"): text for path, text in FILES.items() if path.startswith(("src/", "tests/"))}
    assert packages.tree(package) == wanted


def test_what_is_not_there_is_said_with_what_to_do(shelf: Path) -> None:
    package = replace(on_the_shelf(shelf), version="9.9")
    with pytest.raises(ConfigError) as told:
        packages.fetch(package)
    assert "meshtiny 9.9" in told.value.problem
    assert "AGENTMESH_CACHE" in told.value.hint
    assert not cached(package).exists()


def test_another_archive_than_the_pinned_one_is_never_kept(shelf: Path) -> None:
    package = replace(on_the_shelf(shelf), sha256="0" * 64)
    with pytest.raises(ConfigError, match="cannot be had"):
        packages.fetch(package)
    assert not cached(package).exists()


def test_a_spoilt_cache_is_refused_at_use_and_mended_by_the_next_fetch(shelf: Path) -> None:
    package = in_the_cache(shelf)
    good = cached(package).read_bytes()
    for bad in (good[:-1], b"", archived({"src/tiny/sums.py": "boom"})):
        cached(package).write_bytes(bad)
        with pytest.raises(ConfigError, match="not the one that is pinned"):
            packages.tree(package)
    packages.fetch(package)
    assert cached(package).read_bytes() == good


def test_a_trial_fetches_nothing(shelf: Path) -> None:
    package = on_the_shelf(shelf)
    with pytest.raises(ConfigError, match="not in the cache") as told:
        packages.tree(package)
    assert packages.PREPARE in told.value.hint
    with pytest.raises(ConfigError, match="kill matrix"):
        matrix.load(package)


@pytest.fixture
def tiny(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Some mutants of it do not end, and need not be waited for as long as those of a real package."""
    monkeypatch.setattr(matrix, "SUITE_LIMIT_S", 0.5)
    monkeypatch.setattr(matrix, "TRIES", 10)
    return in_the_cache(shelf)


def test_the_kill_matrix_is_what_the_real_suite_says_and_the_same_each_time(tiny: Package) -> None:
    found = matrix.compute(tiny)
    assert msgspec.json.encode(matrix.compute(tiny)) == msgspec.json.encode(found)
    files = packages.tree(tiny)
    assert {m.path for m in found.mutants} >= {"tiny/sums.py", "tiny/loops.py"}
    for mutant in found.mutants:
        changed = applied(files[mutant.path], mutant)
        assert hashlib.sha256(changed.encode()).hexdigest() == found.after[mutant.id]
        assert [list(found.fails((mutant,)))] == matrix.run(tiny, files, [{mutant.path: changed}])
        assert found.fails((mutant,))
    assert found.fails(()) == ()


def test_a_defect_in_one_file_is_seen_by_the_tests_of_another(tiny: Package) -> None:
    files = packages.tree(tiny)
    wrong = files["tiny/sums.py"].replace("a + b", "a - b")
    assert matrix.run(tiny, files, [{"tiny/sums.py": wrong}, {}]) == [
        ["tests/test_sums.py::test_add", "tests/test_sums.py::test_twice"],
        [],
    ]


def test_a_variant_of_the_same_size_is_never_taken_for_the_original_or_the_one_before(tiny: Package) -> None:
    """Though all that differs is one character, and bytecode is kept."""
    files, signs = packages.tree(tiny), "-+*-+"
    variants = [{"tiny/sums.py": files["tiny/sums.py"].replace("a + b", f"a {sign} b")} for sign in signs]
    count, add, twice = (
        "tests/test_loops.py::test_count",
        *(f"tests/test_sums.py::test_{n}" for n in ("add", "twice")),
    )
    found = {"-": [add, twice], "+": [], "*": [count, add]}  # 2 + 2 is 2 * 2
    expected = [found[sign] for sign in signs]
    assert matrix.run(tiny, files, variants) == expected


def test_a_suite_is_ended_after_so_many_failures_when_more_are_of_no_interest(tiny: Package) -> None:
    files = packages.tree(tiny)
    wrong = {"tiny/sums.py": files["tiny/sums.py"].replace("a + b", "a - b")}
    assert matrix.run(tiny, files, [wrong, {}], 1) == [["tests/test_sums.py::test_add"], []]


def test_a_suite_that_does_not_end_or_cannot_be_read_says_so(tiny: Package) -> None:
    files = packages.tree(tiny)
    endless = files["tiny/loops.py"].replace("i += 1", "pass")
    broken = files["tiny/loops.py"].replace("def ", "deff ")
    variants = [{"tiny/loops.py": endless}, {"tiny/loops.py": broken}, {}]
    assert matrix.run(tiny, files, variants) == [None, ["tests/test_loops.py"], []]


def test_a_package_whose_tests_fail_as_they_come_is_refused(shelf: Path) -> None:
    package = in_the_cache(shelf, {**FILES, "src/tiny/sums.py": FILES["src/tiny/sums.py"].replace("+", "-")})
    with pytest.raises(ConfigError, match="fail as they come"):
        matrix.prepare(package)
    assert not matrix.place(package).exists()


def test_a_kill_matrix_that_cannot_be_read_is_computed_anew(tiny: Package) -> None:
    found = matrix.prepare(tiny)
    whole = matrix.place(tiny).read_bytes()
    matrix.place(tiny).write_bytes(whole[: len(whole) // 2])
    matrix._READ.clear()
    assert matrix.prepare(tiny) == found
    assert matrix.place(tiny).read_bytes() == whole


# --- what is pinned -----------------------------------------------------------------------------------------------


PYTHON = ".".join(platform.python_version_tuple()[:2])


def test_the_locked_matrices_are_pinned_for_this_python_and_are_those() -> None:
    prepare()
    for package in packages.locked():
        assert package.matrix[PYTHON] == matrix.digest(matrix.load(package))


def test_a_matrix_that_is_not_the_pinned_one_is_refused(tiny: Package) -> None:
    found = matrix.digest(matrix.prepare(tiny))
    matrix._READ.clear()
    assert matrix.digest(matrix.load(replace(tiny, matrix={PYTHON: found}))) == found
    for python, pinned in ((PYTHON, "0" * 64), ("2.7", found)):
        matrix._READ.clear()
        with pytest.raises(ConfigError) as told:
            matrix.load(replace(tiny, matrix={python: pinned}))
        assert told.value.problem == f"meshtiny-0.1: its kill matrix on Python {PYTHON} is {found}"
        assert told.value.allowed == f"{pinned} on Python {python}"


def test_another_python_or_pytest_has_another_matrix(tiny: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {matrix.place(tiny)}
    for module, name in ((platform, "python_version"), (matrix, "version")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_: "0.0.1")
            places.add(matrix.place(tiny))
    assert len(places) == 3


def test_of_several_who_prepare_at_once_one_computes(tiny: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, compute = [], matrix.compute
    monkeypatch.setattr(packages, "locked", lambda: (tiny,))
    monkeypatch.setattr(matrix, "compute", lambda package: computed.append(package) or compute(package))
    with ThreadPoolExecutor(3) as several:
        for one in [several.submit(prepare) for _ in range(3)]:
            one.result()
    assert computed == [tiny]
