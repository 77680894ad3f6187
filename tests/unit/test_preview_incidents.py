"""The prober, and the incidents that running a system brings to light, in the sim world; each guard is missed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from arms.mesh.preview import Declaration, GatewayAuth, Page, Route
from harness.core.errors import ConfigError
from harness.incidents.guards_preview import GUARDS
from harness.incidents.kinds import layers, preview
from harness.incidents.play import Guard
from harness.incidents.preview import Prober
from harness.incidents.proof import reverted
from harness.world.preview.systems import Answer, Component, in_memory

FOLDER = Path(__file__).resolve().parents[2] / "schedules" / "incidents"
KINDS = {"preview": preview.play, "layers": layers.play}


def incident(id: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{id}.yaml").read_text(encoding="utf-8"))


INCIDENTS = {id: incident(id) for id in ("I11", "I16", "I20", "I21")}


@pytest.mark.parametrize("id", INCIDENTS)
@pytest.mark.parametrize("side", ["naive", "mesh"])
def test_an_incident_goes_as_its_file_expects(id: str, side: Any) -> None:
    one = INCIDENTS[id]
    played = KINDS[one["kind"]](one["story"], side, "sim")
    expected = one["expect"][side]
    assert {key: getattr(played, key) for key in expected} == expected, played.told


def test_rounds_that_were_cut_are_told_as_such() -> None:
    played = preview.play(INCIDENTS["I11"]["story"], "naive", "sim")
    assert (played.count, played.unit) == (6, "repair rounds (cut there, without an end)")


def test_the_loops_of_the_naive_probe_have_one_signature() -> None:
    assert preview.play(INCIDENTS["I11"]["story"], "naive", "sim").facts["signatures"] == 1


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_a_guard_its_incidents_come_back_and_no_other(guard: Guard) -> None:
    with reverted(guard):
        failed = {id for id, one in INCIDENTS.items() if KINDS[one["kind"]](one["story"], "mesh", "sim").failed}
    assert failed == set(guard.incidents)


def test_each_guard_stands_in_the_files_of_its_incidents() -> None:
    ours = {guard.name for guard in GUARDS}
    named = {(name, id) for id, one in INCIDENTS.items() for name in one["guards"] if name in ours}
    assert named == {(guard.name, id) for guard in GUARDS for id in guard.incidents}


@pytest.mark.parametrize(
    ("variant", "guard"),
    [
        ("the style sheet was never written", "stylesheet_fault"),
        ("a server that answers every path with its front page", "stylesheet_fault"),
        ("a design system that nothing compiled", "stylesheet_fault"),
        ("a script that was never written", "script_fault"),
        ("no front page", "page_fault"),
        ("a page that was never generated, and a navigation that leads to it", "link_fault"),
        ("a route that was never generated", "route_fault"),
        ("a database without rows", "list_fault"),
        ("a service that ends when it starts", "silence_fault"),
        ("a credential that nobody gave", "credential_fault"),
    ],
)
def test_each_variant_is_caught_by_its_own_guard(variant: str, guard: str) -> None:
    story = INCIDENTS["I21"]["story"]
    alone = {**story, "variants": [one for one in story["variants"] if one["name"] == variant]}
    assert not preview.play(alone, "mesh", "sim").failed
    for one in GUARDS:
        if one.target.startswith("arms.mesh.preview") and one.name != "gateway_headers":
            with reverted(one):
                assert preview.play(alone, "mesh", "sim").failed is (one.name == guard), one.name


@pytest.mark.parametrize(
    ("kind", "story", "says"),
    [
        ("preview", {"measure": "joy"}, "measure"),
        ("preview", {**INCIDENTS["I11"]["story"], "probe": "x"}, "probe"),
        ("preview", {**INCIDENTS["I11"]["story"], "terms": {"gateway_auth": 1}}, "gateway_auth"),
        ("layers", {"tells": "fairy tales"}, "tells"),
        ("layers", {**INCIDENTS["I20"]["story"], "turns": 1}, "turns"),
    ],
)
def test_a_story_that_cannot_be_read_is_refused(kind: str, story: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        KINDS[kind](story, "mesh", "sim")


@pytest.mark.parametrize(
    ("files", "green"),
    [({"a.py": "x = 1\n", "b.json": "{}", "c.html": "<"}, True), ({"a.py": "x ="}, False), ({"b.json": "{"}, False)],
)
def test_a_build_is_green_when_its_files_can_be_read(files: dict[str, str], green: bool) -> None:
    assert preview.builds(preview.System(files=files, components={}), "sim") is green


# --- the prober ---------------------------------------------------------------------------------------------------


class Site:
    """A running system with one component that answers from a table."""

    def __init__(self, table: Mapping[str, Answer]) -> None:
        self.table, self.asked = table, list[tuple[str, dict[str, str]]]()

    def get(self, component: str, path: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append((path, dict(headers)))
        return self.table.get(path, Answer(status=404))


def html(text: str) -> Answer:
    return Answer(status=200, headers={"content-type": "text/html; charset=utf-8"}, body=text.encode())


def probe(site: Site, declared: Declaration, headers: Mapping[str, str] = {}) -> list[tuple[str, str, int | None]]:
    return [(o.path, o.role, o.status) for o in Prober(site, declared, headers, {}).observe()]


ONE_PAGE = Declaration(pages=(Page(component="web", path="/"),))


def test_a_browser_follows_pages_once_and_stays_within_the_origin() -> None:
    site = Site({"/": html('<a href="/b">b</a><a href="https://example.org">o</a>'), "/b": html('<a href="/">a</a>')})
    assert probe(site, ONE_PAGE) == [("/", "page", 200), ("/b", "link", 200)]
    assert [path for path, _ in site.asked] == ["/", "/b"]


def test_a_redirect_within_the_origin_is_followed_and_its_place_counts() -> None:
    site = Site({"/": Answer(status=302, headers={"location": "/app/"}), "/app/": html('<a href="in">i</a>')})
    assert probe(site, ONE_PAGE) == [("/", "page", 200), ("/app/in", "link", 404)]


def test_a_redirect_in_circles_ends() -> None:
    site = Site({"/": Answer(status=302, headers={"location": "/"})})
    assert probe(site, ONE_PAGE) == [("/", "page", 302)]


def test_a_site_without_end_is_left_at_some_point() -> None:
    class Endless(Site):
        def get(self, component: str, path: str, headers: Mapping[str, str]) -> Answer:
            day = int(path.strip("/") or 0)
            return html(f'<a href="/{day + 1}">next</a>')

    assert len(probe(Endless({}), ONE_PAGE)) == 200


def test_every_request_carries_what_the_gateway_sets() -> None:
    site = Site({"/": html('<link rel="stylesheet" href="a.css">')})
    auth = GatewayAuth(scheme="headers", headers={"X-Subject": "u"})
    declared = Declaration(auth=auth, routes=(Route(component="web", path="/r"),), pages=ONE_PAGE.pages)
    probe(site, declared, auth.headers)
    assert site.asked == [(path, {"X-Subject": "u"}) for path in ("/r", "/", "/a.css")]


@pytest.mark.parametrize(
    ("body", "at", "items"),
    [("[1, 2]", "", 2), ('{"a": {"b": []}}', "a.b", 0), ('{"a": 1}', "a", None), ("nonsense", "", None)],
)
def test_entries_of_a_declared_list_are_counted(body: str, at: str, items: int | None) -> None:
    route = Route(component="web", path="/r", list_min=1, list_at=at)
    (seen,) = Prober(
        Site({"/r": Answer(status=200, body=body.encode())}), Declaration(routes=(route,)), {}, {}
    ).observe()
    assert seen.items == items


def test_a_component_that_raises_answers_500_and_lives_on() -> None:
    files = {"s.py": "def respond(method, path, headers, env):\n    return 200, {}, env[path]\n"}
    with in_memory({"s": Component(module="s.py", env={"/ok": "yes", "/no": None})}, files) as system:
        assert [system.get("s", path, {}).status for path in ("/no", "/ok")] == [500, 200]


def test_a_component_that_ends_when_it_loads_is_told_by_its_silence() -> None:
    for text in ("raise SystemExit(3)\n", "import nothing_of_this_name\n", "x =\n", "x = 1\n"):
        with in_memory({"s": Component(module="s.py")}, {"s.py": text}) as system:
            answer = system.get("s", "/", {})
        assert (answer.status, answer.ended) == (None, True)
