"""Running-system verification, the judgement: what the answers of a system that really runs say about its components.

A green build says that files fit together, not that anybody could use what was built. The probe asks as the gateway
does, and an answer that only the probe's own manner explains is no evidence against a component: repairing right
code because of it could never succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from harness.core.errors import ConfigError
from harness.core.types import EffectContract, Json, Verdict

DENIED = (401, 403)
SCRIPT_TYPES = ("text/javascript", "application/javascript", "application/ecmascript", "text/ecmascript")


class GatewayAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How components know who asks, the term `gateway_auth`. headers: what the gateway sets on every request that it
    passes on, by name; for a bearer token that is `Authorization`."""

    scheme: Literal["headers", "bearer", "none"]
    headers: dict[str, str] = {}


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A declared route of a component. list_min: entries that its list must have, None when it is no list; list_at: the
    key under which the list stands, "" when the whole body is the list."""

    component: str
    path: str
    type: str = "application/json"
    list_min: int | None = None
    list_at: str = ""


class Page(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page that a person opens. styled: it must name a style sheet."""

    component: str
    path: str
    styled: bool = False


class Credential(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable by which one component proves itself to another. given_by: the component whose work is to set it."""

    name: str
    used_by: str
    given_by: str


class Declaration(Struct, frozen=True, kw_only=True):
    """What a running system must show. auth None: nobody declared how the gateway authenticates."""

    auth: GatewayAuth | None = None
    routes: tuple[Route, ...] = ()
    pages: tuple[Page, ...] = ()
    credentials: tuple[Credential, ...] = ()

    def route(self, component: str, path: str) -> Route | None:
        return next((r for r in self.routes if (r.component, r.path) == (component, path)), None)

    def page(self, component: str, path: str) -> Page | None:
        return next((p for p in self.pages if (p.component, p.path) == (component, path)), None)


class _Surface(Struct, frozen=True, forbid_unknown_fields=True):
    routes: tuple[Route, ...] = ()
    pages: tuple[Page, ...] = ()
    credentials: tuple[Credential, ...] = ()


def declaration(contract: EffectContract) -> Declaration:
    """The terms `gateway_auth` and `preview` of a contract. Raises ConfigError when they cannot be read."""
    auth = _term(contract.terms, "gateway_auth", GatewayAuth | None)
    surface = _term(contract.terms, "preview", _Surface | None) or _Surface()
    return Declaration(auth=auth, routes=surface.routes, pages=surface.pages, credentials=surface.credentials)


def _term(terms: Mapping[str, Json], name: str, wanted: Json) -> Json:
    try:
        return msgspec.convert(terms.get(name), wanted)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), where=f"terms.{name}", hint="see arms/mesh/preview.py for its keys") from error


Role = Literal["route", "page", "stylesheet", "script", "link"]


class Observation(Struct, frozen=True, kw_only=True):
    """One request to a running component and what came back: metadata only, never the body.

    role: as what it was asked for; seen_on: the page that names it, "" for what the declaration names. scheme: how the
    request authenticated. status None: no answer; ended: the process is known to have ended by itself. items: entries
    of the declared list, None when there is no list. styles: style sheets that a page names, or declarations in a
    style sheet that a browser would apply. lacks: declared credentials that the process was started without.
    """

    component: str
    path: str
    role: Role
    scheme: str
    status: int | None
    content_type: str = ""
    seen_on: str = ""
    ended: bool = False
    items: int | None = None
    styles: int | None = None
    lacks: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """What an observation means. owner: the component at fault, "" when nobody is known to be. verdict: `rejected` for
    a fault, `abstained` for what is no evidence."""

    kind: Literal["stylesheet", "script", "link", "page", "route", "list", "credential", "not-serving", "no-evidence"]
    owner: str
    at: str
    verdict: Verdict
    because: str


def judge(observations: Iterable[Observation], declared: Declaration) -> tuple[Finding, ...]:
    """The findings, in the order of the observations; at most one for each, none for a good one."""
    found = (_finding(one, declared) for one in observations)
    return tuple(finding for finding in found if finding is not None)


def verdict(findings: Iterable[Finding]) -> Verdict:
    """One verdict on the system: a fault is a fault, whatever else could not be told."""
    said = {finding.verdict for finding in findings}
    return next((v for v in (Verdict.REJECTED, Verdict.ABSTAINED) if v in said), Verdict.EXECUTED)


def _finding(seen: Observation, declared: Declaration) -> Finding | None:
    if not is_evidence(seen, declared.auth):
        wanted = declared.auth.scheme if declared.auth else "nothing that is declared"
        because = f"{seen.status or 'no answer'} to a probe by {seen.scheme}; the gateway authenticates by {wanted}"
        return Finding(
            kind="no-evidence", owner="", at=seen.component + seen.path, verdict=Verdict.ABSTAINED, because=because
        )
    if seen.status is not None and 300 <= seen.status < 400:
        return None  # it leads to another origin, which is not this system's
    fault = credential_fault(seen, declared) or silence_fault(seen)
    if fault is not None or seen.status is None:
        return fault
    return _BY_ROLE[seen.role](seen, declared)


# --- guards: each is looked up by name when it is needed -----------------------------------------------------------


def gateway_headers(auth: GatewayAuth | None) -> dict[str, str]:
    """The headers that a probe sends: those that the gateway sets, whatever they are."""
    return dict(auth.headers) if auth else {}


def is_evidence(seen: Observation, auth: GatewayAuth | None) -> bool:
    """Whether an answer says anything about the component: a denial does when the probe authenticated as the gateway
    does, and silence does when the process is known to have ended."""
    if seen.status is None:
        return seen.ended
    return seen.status not in DENIED or (auth is not None and seen.scheme == auth.scheme)


def credential_fault(seen: Observation, declared: Declaration) -> Finding | None:
    """A component that fails while it lacks a declared credential: who had to give it is at fault, not the one who
    cannot do without."""
    failed = seen.status is None or seen.status in DENIED or seen.status >= 500
    for one in declared.credentials if failed else ():
        if one.used_by == seen.component and one.name in seen.lacks:
            return _fault(seen, "credential", f"{seen.component} was started without {one.name}", owner=one.given_by)
    return None


def silence_fault(seen: Observation) -> Finding | None:
    """A component whose process ended by itself answers nothing, whatever it is asked."""
    return _fault(seen, "not-serving", "its process ended by itself") if seen.status is None else None


def route_fault(seen: Observation, declared: Declaration) -> Finding | None:
    """A declared route has to answer, with the declared type."""
    route = declared.route(seen.component, seen.path)
    if route is None:
        return None
    if not _well(seen):
        return _fault(seen, "route", f"a declared route answers {seen.status}")
    if seen.content_type != route.type:
        return _fault(seen, "route", f"a declared route answers with {seen.content_type or 'no type'}")
    return None


def list_fault(seen: Observation, declared: Declaration) -> Finding | None:
    """A list that is declared to have entries has them: an empty one is what a database without data looks like."""
    route = declared.route(seen.component, seen.path)
    if route is None or route.list_min is None or not _well(seen) or (seen.items or 0) >= route.list_min:
        return None
    there = "no list" if seen.items is None else f"{seen.items} entries"
    return _fault(seen, "list", f"{there} where at least {route.list_min} are declared")


def stylesheet_fault(seen: Observation) -> Finding | None:
    """A browser applies a style sheet that is there, has its type, and has something to apply."""
    if not _well(seen):
        return _fault(seen, "stylesheet", f"a style sheet answers {seen.status}")
    if seen.content_type != "text/css":
        return _fault(seen, "stylesheet", f"a style sheet answers with {seen.content_type or 'no type'}")
    if not seen.styles:
        return _fault(seen, "stylesheet", "a style sheet has nothing that a browser would apply")
    return None


def script_fault(seen: Observation) -> Finding | None:
    """A browser runs a script that is there and has a script's type."""
    if not _well(seen):
        return _fault(seen, "script", f"a script answers {seen.status}")
    if seen.content_type not in SCRIPT_TYPES:
        return _fault(seen, "script", f"a script answers with {seen.content_type or 'no type'}")
    return None


def link_fault(seen: Observation) -> Finding | None:
    """A link leads somewhere."""
    return None if _well(seen) else _fault(seen, "link", f"a link leads to {seen.status}")


def page_fault(seen: Observation, declared: Declaration) -> Finding | None:
    """A declared page is there, is HTML, and names a style sheet where it must."""
    if not _well(seen) or seen.content_type != "text/html":
        return _fault(seen, "page", f"a page answers {seen.status} with {seen.content_type or 'no type'}")
    page = declared.page(seen.component, seen.path)
    if page is not None and page.styled and not seen.styles:
        return _fault(seen, "stylesheet", "a page that must be styled names no style sheet")
    return None


_BY_ROLE: dict[str, Callable[[Observation, Declaration], Finding | None]] = {
    "route": lambda seen, declared: route_fault(seen, declared) or list_fault(seen, declared),
    "page": lambda seen, declared: page_fault(seen, declared),
    "stylesheet": lambda seen, declared: stylesheet_fault(seen),
    "script": lambda seen, declared: script_fault(seen),
    "link": lambda seen, declared: link_fault(seen),
}


def scheme_of(sent: Mapping[str, str], auth: GatewayAuth | None) -> str:
    """How a request with these headers authenticates: as the gateway does, by a bearer token, or not at all."""
    have = {name.lower(): value for name, value in sent.items()}
    if auth is not None and all(have.get(name.lower()) == value for name, value in auth.headers.items()):
        return auth.scheme
    return "bearer" if have.get("authorization", "").lower().startswith("bearer ") else "none"


def _well(seen: Observation) -> bool:
    return seen.status is not None and 200 <= seen.status < 300


def _fault(seen: Observation, kind: Json, because: str, *, owner: str = "") -> Finding:
    where = f"{seen.component}{seen.path}" + (f" (on {seen.seen_on})" if seen.seen_on else "")
    return Finding(kind=kind, owner=owner or seen.component, at=where, verdict=Verdict.REJECTED, because=because)
