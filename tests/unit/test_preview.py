"""What an answer of a running system means, by table, and what a browser takes from a page."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arms.mesh.preview import (
    Credential,
    Declaration,
    GatewayAuth,
    Observation,
    Page,
    Route,
    declaration,
    gateway_headers,
    judge,
    scheme_of,
    verdict,
)
from harness.core.errors import ConfigError
from harness.core.types import EffectContract, Verdict
from harness.world.preview.browser import Reference, references, same_origin, style_declarations

AUTH = GatewayAuth(scheme="headers", headers={"X-Subject": "u", "X-Scopes": "read"})
DECLARED = Declaration(
    auth=AUTH,
    routes=(
        Route(component="api", path="/rows", list_min=1),
        Route(component="api", path="/health", type="text/plain"),
    ),
    pages=(Page(component="web", path="/", styled=True), Page(component="web", path="/plain")),
    credentials=(Credential(name="TOKEN", used_by="api", given_by="delivery"),),
)
ROWS = Observation(
    component="api", path="/rows", role="route", scheme="headers", status=200, content_type="application/json", items=1
)
HEALTH = replace(ROWS, path="/health", content_type="text/plain", items=None)
SHEET = Observation(
    component="web",
    path="/a.css",
    role="stylesheet",
    scheme="headers",
    status=200,
    content_type="text/css",
    seen_on="/",
    styles=3,
)
SCRIPT = replace(SHEET, path="/a.js", role="script", content_type="text/javascript", styles=None)
LINK = replace(SHEET, path="/b", role="link", content_type="text/html", styles=0)
PAGE = replace(SHEET, path="/", role="page", content_type="text/html", seen_on="", styles=1)


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        (ROWS, None),
        (HEALTH, None),
        (SHEET, None),
        (SCRIPT, None),
        (LINK, None),
        (PAGE, None),
        (replace(SHEET, status=404), ("stylesheet", "web")),
        (replace(SHEET, content_type="text/html"), ("stylesheet", "web")),
        (replace(SHEET, styles=0), ("stylesheet", "web")),
        (replace(SHEET, status=302, content_type=""), None),
        (replace(SCRIPT, status=404), ("script", "web")),
        (replace(SCRIPT, content_type="text/html"), ("script", "web")),
        (replace(LINK, status=404), ("link", "web")),
        (replace(LINK, content_type="application/pdf"), None),
        (replace(PAGE, status=500), ("page", "web")),
        (replace(PAGE, content_type="text/plain"), ("page", "web")),
        (replace(PAGE, styles=0), ("stylesheet", "web")),
        (replace(PAGE, path="/plain", styles=0), None),
        (replace(ROWS, status=404), ("route", "api")),
        (replace(ROWS, content_type="text/html"), ("route", "api")),
        (replace(ROWS, items=0), ("list", "api")),
        (replace(ROWS, items=None), ("list", "api")),
        (replace(ROWS, status=502), ("route", "api")),
        (replace(ROWS, status=502, lacks=("TOKEN",)), ("credential", "delivery")),
        (replace(ROWS, status=401, lacks=("TOKEN",)), ("credential", "delivery")),
        (replace(ROWS, status=404, lacks=("TOKEN",)), ("route", "api")),
        (replace(ROWS, lacks=("TOKEN",)), None),
        (replace(ROWS, status=None, ended=True), ("not-serving", "api")),
        (replace(ROWS, status=None, ended=True, lacks=("TOKEN",)), ("credential", "delivery")),
        (replace(ROWS, status=None), ("no-evidence", "")),
        (replace(ROWS, status=401), ("route", "api")),
        (replace(ROWS, status=401, scheme="bearer"), ("no-evidence", "")),
        (replace(ROWS, status=403, scheme="none"), ("no-evidence", "")),
        (replace(ROWS, status=401, scheme="bearer", lacks=("TOKEN",)), ("no-evidence", "")),
        (replace(ROWS, status=404, scheme="bearer"), ("route", "api")),
    ],
)
def test_an_observation_means(seen: Observation, finding: tuple[str, str] | None) -> None:
    found = judge([seen], DECLARED)
    assert [(f.kind, f.owner) for f in found] == ([finding] if finding else [])
    assert all((f.verdict is Verdict.ABSTAINED) == (f.kind == "no-evidence") for f in found)


def test_without_a_declared_scheme_a_denial_is_no_evidence() -> None:
    (found,) = judge([replace(ROWS, status=401, scheme="none")], replace(DECLARED, auth=None))
    assert found.verdict is Verdict.ABSTAINED


def test_a_fault_weighs_more_than_what_could_not_be_told() -> None:
    doubt, fault = replace(ROWS, status=None), replace(LINK, status=404)
    assert verdict(judge([ROWS], DECLARED)) is Verdict.EXECUTED
    assert verdict(judge([ROWS, doubt], DECLARED)) is Verdict.ABSTAINED
    assert verdict(judge([doubt, fault, ROWS], DECLARED)) is Verdict.REJECTED


@pytest.mark.parametrize(
    ("sent", "auth", "scheme"),
    [
        (gateway_headers(AUTH), AUTH, "headers"),
        ({"x-subject": "u", "x-scopes": "read", "accept": "*/*"}, AUTH, "headers"),
        ({"X-Subject": "u"}, AUTH, "none"),
        ({"X-Subject": "other", "X-Scopes": "read"}, AUTH, "none"),
        ({"Authorization": "Bearer t"}, AUTH, "bearer"),
        ({"Authorization": "Basic t"}, AUTH, "none"),
        (gateway_headers(None), None, "none"),
        ({}, GatewayAuth(scheme="none"), "none"),
    ],
)
def test_a_request_authenticates_by(sent: dict[str, str], auth: GatewayAuth | None, scheme: str) -> None:
    assert scheme_of(sent, auth) == scheme


def test_a_contract_declares_the_gateway_and_the_surface() -> None:
    terms = {
        "gateway_auth": {"scheme": "bearer", "headers": {"Authorization": "Bearer t"}},
        "preview": {"pages": [{"component": "web", "path": "/"}]},
    }
    declared = declaration(EffectContract(terms=terms))
    assert gateway_headers(declared.auth) == {"Authorization": "Bearer t"}
    assert declared.page("web", "/") == Page(component="web", path="/")
    assert declaration(EffectContract()) == Declaration()


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"gateway_auth": {"scheme": "cookies"}}, r"terms\.gateway_auth.*scheme"),
        ({"preview": {"route": []}}, r"terms\.preview.*route"),
    ],
)
def test_terms_that_cannot_be_read_are_refused(terms: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        declaration(EffectContract(terms=terms))


# --- what a browser takes from a page -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<link rel="stylesheet" href="a.css">', [("stylesheet", "/shop/a.css")]),
        ('<link rel="alternate StyleSheet" href="/a.css?v=2#x">', [("stylesheet", "/a.css?v=2")]),
        ('<link rel="prefetch" href="/next">', [("link", "/next")]),
        ('<link rel="canonical" href="/never-asked">', []),
        ('<script src="../x.js"></script><script>inline()</script>', [("script", "/x.js")]),
        ('<a href="b.html">b</a><a href="b.html#part">b</a>', [("link", "/shop/b.html")]),
        ('<a href="https://example.org/">o</a><a href="//cdn.example/x">c</a>', []),
        ('<a href="mailto:a@b">m</a><a href="javascript:x()">j</a><a href="#top">t</a><a name="n">n</a>', []),
        ('<base href="/deep/"><a href="c">c</a>', [("link", "/deep/c")]),
        ('<a href="">self</a><A HREF=d>unquoted', [("link", "/shop/d")]),
        ('<!-- <a href="/no"> --><a href="?page=2">n</a>', [("link", "/shop/?page=2")]),
    ],
)
def test_a_page_leads_to(html: str, found: list[tuple[str, str]]) -> None:
    assert references(html, "/shop/") == tuple(Reference(role, path) for role, path in found)  # type: ignore[arg-type]


def test_an_address_of_another_origin_has_no_path_here() -> None:
    assert same_origin("../a", "/b/c") == "/a"
    assert same_origin("https://example.org/a", "/b/c") is None


@pytest.mark.parametrize(
    ("sheet", "count"),
    [
        ("a { color: red }", 1),
        ("a{color:red;margin:0}b{}", 2),
        ("@media (min-width: 1px) { a { color: red; } }", 1),
        ("@tailwind base; .b { @apply px-4; } /* a { color: red } */", 0),
        ("<!doctype html><html></html>", 0),
        ("", 0),
    ],
)
def test_a_style_sheet_would_apply(sheet: str, count: int) -> None:
    assert style_declarations(sheet) == count
