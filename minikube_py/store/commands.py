"""The writes of a `Storage` as what they are: one command each. Whoever can send a command has them all."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

from minikube_py.fields.spec import FieldSet
from minikube_py.index.declared import IndexSpec, check_spec
from minikube_py.mvcc.types import (
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    DeclareIndex,
    DropIndex,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Op,
    Release,
    Result,
    SessionCommand,
    Txn,
    TxnResult,
)


class CommandStorage:
    """See `Storage` for each."""

    def command(self, command: SessionCommand) -> Awaitable[Result]:
        """Sends it through the log, once. Raises: RequestError, Unavailable, OutcomeUnknown."""
        raise NotImplementedError

    async def txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        return cast(TxnResult, await self.command(Txn(tuple(compare), tuple(success), tuple(failure))))

    async def release(self, txn: Txn) -> TxnResult:
        return cast(TxnResult, await self.command(Release(txn)))

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        return cast(LeaseResult, await self.command(LeaseGrant(lease_id, ttl_s)))

    async def lease_revoke(self, lease_id: int) -> None:
        await self.command(LeaseRevoke(lease_id))

    async def compact(self, revision: int) -> CompactResult:
        return cast(CompactResult, await self.command(Compact(revision)))

    async def declare(self, field_set: FieldSet) -> None:
        await self.command(DeclareFields(field_set))

    async def declare_index(self, spec: IndexSpec) -> int:
        check_spec(spec)
        return (await self.command(DeclareIndex(spec))).revision

    async def drop_index(self, name: str) -> int:
        return (await self.command(DropIndex(name))).revision
