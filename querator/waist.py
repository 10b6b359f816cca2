"""The waist: what a storage backend has to offer, and all that the core ever asks of it.

A partition is a small ordered key-value store: blocks (integer → bytes), records (bytes → bytes), a summary, and a
fenced, numbered, atomic commit. Leases, schedules, dead letters and counters are the core's business, above.
The conformance suite in ``tests/conformance`` is the executable form of these docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

MAX_BLOCK_ID = 2**63 - 1


class StorageError(Exception):
    """The call failed and changed nothing."""


class OutcomeUnknown(StorageError):
    """The answer was lost: the commit may have landed or not. `Partition.open` tells by the commit number."""


class Fenced(StorageError):
    """Another owner has opened the partition with a higher epoch; this one may never write again."""


class Missing(StorageError):
    """The backend has no such partition."""


class Opened(NamedTuple):
    number: int  # of the last commit that landed; 0 for a new partition
    summary: bytes  # the last batch's summary; empty for a new partition


class StoredBlock(NamedTuple):
    id: int
    data: bytes


class Record(NamedTuple):
    key: bytes
    value: bytes


class Batch(msgspec.Struct, kw_only=True, gc=False):
    """What one turn writes to one partition, all or nothing."""

    number: int  # the number of the last commit + 1
    summary: bytes  # replaces the partition's summary
    blocks: dict[int, bytes] = {}  # ids are positive, fit in 63 bits, and were never used before
    dropped_blocks: list[int] = []
    puts: dict[bytes, bytes] = {}
    deletes: list[bytes] = []


class Partition(Protocol):
    """One partition. All calls come from one event loop; at most one `commit` is in flight."""

    async def open(self, epoch: int) -> Opened:
        """Take ownership: raise the stored epoch to this one. Must be called before `commit`.

        Raises `Fenced` if the stored epoch is higher. Opening again with the same epoch is allowed, waits for a
        commit in flight to end, and tells by its number whether it landed.
        """

    async def commit(self, batch: Batch) -> None:
        """Write the batch atomically and durably, in one round trip.

        Within a batch, drops and deletes happen before puts. Dropping or deleting what is not there is no error.
        Raises `Fenced` if the stored epoch is not the one that was opened with, `OutcomeUnknown` if the answer was
        lost, `StorageError` if nothing was written (also if ``number`` does not follow the stored one).
        Cancelling the call does not take the batch back.
        """

    async def scan_blocks(self, start: int, stop: int, limit: int, reverse: bool = False) -> list[StoredBlock]:
        """Up to ``limit`` blocks with ``start <= id < stop`` in the order of ids, or the reverse."""

    async def scan(self, start: bytes, stop: bytes, limit: int, reverse: bool = False) -> list[Record]:
        """Up to ``limit`` records with ``start <= key < stop`` in the order of keys (bytewise), or the reverse."""

    async def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The records that exist among ``keys``."""

    async def close(self) -> None:
        """Wait for the commit in flight and let go. Closing twice is allowed."""


class Health(NamedTuple):
    ok: bool
    details: str  # one line for people; empty if all is well


class Backend(Protocol):
    """One configured place for partitions. A partition is known by an integer that is unique for ever."""

    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...

    affinity: float  # its share of new partitions, 0.0 to 1.0; set by whoever configures it

    async def create(self, partition: int) -> None:
        """Make an empty partition with epoch 0. Creating what exists changes nothing."""

    async def drop(self, partition: int) -> None:
        """Remove a partition and all of its data. Dropping what does not exist is no error."""

    async def list(self) -> list[int]:
        """All partitions, in order."""

    def partition(self, partition: int) -> Partition:
        """A handle; whether it exists shows at `Partition.open`, which raises `Missing`."""

    async def health(self) -> Health: ...

    async def close(self) -> None:
        """Close all partitions, make everything durable, and let go of files and connections."""
