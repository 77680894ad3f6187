"""Probes a running system as its gateway and as a browser would, and writes down what came back.

The judgement is `arms.mesh.preview`; here nothing is judged, so that both worlds and every side of a story observe in
one way. No script is run: a headless browser would show more, and is left for later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arms.mesh.preview import Declaration, GatewayAuth, Observation, Role, Route, scheme_of
from harness.world.preview.browser import references, same_origin, style_declarations
from harness.world.preview.systems import Answer, RunningSystem

REDIRECTS_MAX = 5
PLACES_MAX = 200
"""Places of one origin that a browser goes to; a calendar without end must not hold the probe for ever."""


class Prober:
    """headers: what is sent with every request, since everything comes in through the gateway. given: names of the
    variables that are set in each component's environment."""

    def __init__(
        self,
        system: RunningSystem,
        declared: Declaration,
        headers: Mapping[str, str],
        given: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._system, self._declared, self._headers, self._given = system, declared, headers, given
        self._scheme = scheme_of(headers, declared.auth)

    def observe(self) -> tuple[Observation, ...]:
        """Every declared route, every declared page, and every place of its origin that a page leads to."""
        routes = [self._route(route) for route in self._declared.routes]
        return (*routes, *self._browse())

    def _route(self, route: Route) -> Observation:
        answer, _ = self._get(route.component, route.path)
        items = None if route.list_min is None else _items(answer, route.list_at)
        return self._seen(route.component, route.path, "route", answer, items=items)

    def _browse(self) -> list[Observation]:
        """Breadth first. A place is asked for once in each role, and its own references are followed once."""
        asked: list[tuple[str, str, Role, str]] = [(p.component, p.path, "page", "") for p in self._declared.pages]
        known = {one[:3] for one in asked}
        read: set[tuple[str, str]] = set()
        seen: list[Observation] = []
        for component, path, role, seen_on in asked:  # grows while it is gone through
            answer, final = self._get(component, path)
            text = answer.body.decode("utf-8", "replace")
            styles = style_declarations(text) if role == "stylesheet" else None
            html = answer.content_type == "text/html" and role in ("page", "link") and answer.status == 200
            if html:
                found = references(text, final)
                styles = sum(one.role == "stylesheet" for one in found)
                for one in found if (component, path) not in read else ():
                    place: tuple[str, str, Role] = (component, one.path, one.role)
                    new = place not in known and (component, one.path, "page") not in known
                    if new and len(asked) < PLACES_MAX:
                        known.add(place)
                        asked.append((*place, path))
                read.add((component, path))
            seen.append(self._seen(component, path, role, answer, seen_on=seen_on, styles=styles))
        return seen

    def _get(self, component: str, path: str) -> tuple[Answer, str]:
        """The answer after redirects within the origin, and the path that gave it; a redirect to another origin is
        the answer itself."""
        answer = self._system.get(component, path, self._headers)
        for _ in range(REDIRECTS_MAX):
            to = answer.headers.get("location", "") if answer.status and 300 <= answer.status < 400 else ""
            inner = same_origin(to, path) if to else None
            if inner is None:
                break
            path = inner
            answer = self._system.get(component, path, self._headers)
        return answer, path

    def _seen(self, component: str, path: str, role: Role, answer: Answer, **more: Any) -> Observation:
        needed = (c.name for c in self._declared.credentials if c.used_by == component)
        return Observation(
            component=component,
            path=path,
            role=role,
            scheme=self._scheme,
            status=answer.status,
            content_type=answer.content_type,
            ended=answer.ended,
            lacks=tuple(name for name in needed if name not in self._given.get(component, {})),
            **more,
        )


def _items(answer: Answer, at: str) -> int | None:
    """Entries of the list in a JSON body, None when there is no list."""
    try:
        value = json.loads(answer.body)
    except ValueError:
        return None
    for key in filter(None, at.split(".")):
        value = value.get(key) if isinstance(value, dict) else None
    return len(value) if isinstance(value, list) else None


def bearer_headers(auth: GatewayAuth | None) -> dict[str, str]:
    """What a probe sends that knows bearer tokens only, however the gateway authenticates."""
    return {"Authorization": "Bearer preview"}
