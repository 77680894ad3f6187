"""Holding a delegation: taking its lease, waiting for somebody else's, and keeping it while work goes on.

Why kept by a beat and not only by writes: a check may run longer than a lease, and its host is no zombie for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from arms.mesh.ledger import LEASE_MS, LOCAL, Backend
from harness.core.roles import ArmContext

WAITS_MAX = 40
"""Looks at a lease that somebody else holds, a quarter of its length apart: ten whole leases."""

WAIT_SHARE = 0.25
RENEWALS_MAX = 30
"""Renewals of a lease, a third of its length apart, while a crossing shows no progress: a process that is stopped
renews nothing, and what hangs for longer than this in one that lives is somebody else's to take over."""

T = TypeVar("T")


class Leases:
    """The leases of one process. holder: its host, equal after a restart on the same durable state."""

    def __init__(self, ctx: ArmContext, backend: Backend, holder: str) -> None:
        self._ctx, self._ledger, self.holder = ctx, backend, holder
        self._tokens: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._lengths: dict[str, float] = {}

    @property
    def shared(self) -> bool:
        """Whether somebody else could take a delegation over."""
        return self.holder != LOCAL

    def token(self, delegation: str) -> int:
        """The newest token of this process, 0 when it never held the delegation."""
        return self._tokens.get(delegation, 0)

    def tenant(self, delegation: str) -> str:
        return self._tenants.get(delegation, "")

    def length_ms(self, delegation: str) -> float:
        """How long its lease lasts without a renewal."""
        return self._lengths.get(delegation, LEASE_MS)

    async def take(self, tenant: str, delegation: str) -> str:
        """Take the lease, waiting while another host holds it; "" or, when that took too long, who it is."""
        waited_ms, length_ms = 0.0, self._declared_ms(delegation)
        for _ in range(WAITS_MAX):
            grant = self._ledger.lease(tenant, delegation, self.holder, length_ms)
            if grant.token:
                self._tokens[delegation], self._tenants[delegation] = grant.token, tenant
                self._lengths[delegation] = length_ms
                if waited_ms or grant.before not in ("", self.holder):
                    pending = len(self._ledger.pending(tenant, delegation))
                    taken = {"delegation": delegation, "token": grant.token, "from": grant.before}
                    self._ctx.note("lease", {**taken, "waited_ms": waited_ms, "pending": pending})
                return ""
            pause_ms = min(grant.wait_ms, WAIT_SHARE * length_ms) + 1.0
            await self._ctx.sleep_ms(pause_ms)
            waited_ms += pause_ms
        return grant.before

    def release(self, delegation: str, token: int) -> None:
        self._ledger.release(self.tenant(delegation), delegation, token)

    def renew(self, delegation: str) -> bool:
        return self._ledger.renew(self.tenant(delegation), delegation, self.token(delegation))

    def may_begin(self, delegation: str) -> bool:
        """Whether an effect may begin now: the last look before the wire."""
        held = self.tenant(delegation), delegation, self.token(delegation)
        return self._ledger.vouches(*held) or self._ledger.renew(*held)

    def _declared_ms(self, delegation: str) -> float:
        contract = self._ctx.contracts.get(delegation)
        return float(contract.terms.get("lease_ms", LEASE_MS)) if contract else LEASE_MS

    async def kept(self, delegation: str, call_id: str, work: Awaitable[T]) -> T:
        """The result of a crossing during which the lease is kept, where somebody else could take it."""
        if not self.shared:
            return await work
        beat = asyncio.ensure_future(self._beat(delegation, call_id))
        try:
            return await work
        finally:
            beat.cancel()

    async def _beat(self, delegation: str, call_id: str) -> None:
        units, idle = self._ctx.progress(call_id), 0
        while idle < RENEWALS_MAX:
            await self._ctx.sleep_ms(self.length_ms(delegation) / 3)
            if not self.renew(delegation):
                return
            now = self._ctx.progress(call_id)
            idle = idle + 1 if now == units else 0
            units = now
