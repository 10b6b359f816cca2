"""What the cluster asks of its coordination: ordered keys with revisions, compare-and-set, leases and watches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import NamedTuple, Protocol

from cluster.lease import CoordinationError, Lease, LeaseLost

__all__ = ["Change", "CoordinationError", "Coordinator", "Entry", "Lease", "LeaseLost", "Snapshot", "check_transaction"]


class Entry(NamedTuple):
    key: str
    value: bytes
    revision: int  # of the transaction that wrote it; grows with every transaction


class Snapshot(NamedTuple):
    """All that a watch sees at one revision. It takes the place of everything that the watch said before."""

    entries: tuple[Entry, ...]  # in the order of keys
    revision: int


class Change(NamedTuple):
    key: str
    value: bytes | None  # None: the key was deleted, or its lease ended
    revision: int


class Coordinator(Protocol):
    """Every call is bounded in time, and raises `CoordinationError` if the coordinator does not answer."""

    async def get(self, key: str) -> Entry | None: ...

    async def list(self, prefix: str) -> list[Entry]:
        """All entries whose key begins with the prefix, in the order of keys."""

    async def transact(
        self,
        *,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Sequence[str] = (),
        lease: Lease | None = None,
    ) -> int | None:
        """Write all or nothing, durably; returns the new revision.

        ``expected`` maps keys to the revision that they must have, 0 for a key that must not exist. Returns None,
        and changes nothing, if one of them differs. With a lease, the keys that are put vanish when it ends; raises
        `LeaseLost`, and changes nothing, if it has ended. A put without a lease takes its key out of any lease.
        After a `CoordinationError` of any other kind it is unknown whether the transaction took place.
        """

    async def grant(self, ttl_ms: int) -> Lease:
        """A lease that is kept alive until it is revoked or this coordinator is closed.

        It may be granted for longer than was asked for; `Lease.ttl_ms` says for how long.
        """

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Change, None]:
        """First a snapshot of the keys with this prefix, then every later change of them, in order.

        When the history was lost (a disconnect, a restart, a consumer that is too slow for what is kept of it), a new
        snapshot follows instead of the changes. It goes on by itself for as long as the coordinator is open, and ends
        when that is closed. What waits for a slow consumer is bounded. Close it (`contextlib.aclosing`) when done.
        """

    async def close(self) -> None:
        """Leases are not kept any longer, and thus lost; watches end. May be called twice."""


def check_transaction(puts: Mapping[str, bytes], deletes: Sequence[str], lease: Lease | None) -> None:
    """What no coordinator takes."""
    both = sorted(set(deletes) & puts.keys())
    if both:
        raise ValueError(f"a transaction cannot put and delete the same key: {both[0]}")
    if lease is not None and lease.lost.is_set():
        raise LeaseLost(lease.id)
