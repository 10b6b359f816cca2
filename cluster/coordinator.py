"""What the cluster asks of its coordination: ordered keys with revisions, and compare-and-set transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class CoordinationError(Exception):
    """The coordinator cannot be reached or used; nothing is known to have changed."""


class Entry(NamedTuple):
    key: str
    value: bytes
    revision: int  # of the transaction that wrote it; grows with every transaction


class Coordinator(Protocol):
    async def get(self, key: str) -> Entry | None: ...

    async def list(self, prefix: str) -> list[Entry]:
        """All entries whose key begins with the prefix, in the order of keys."""

    async def transact(
        self, *, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str] = ()
    ) -> int | None:
        """Write all or nothing, durably; returns the new revision.

        ``expected`` maps keys to the revision that they must have, 0 for a key that must not exist. Returns None,
        and changes nothing, if one of them differs.
        """

    async def close(self) -> None: ...
