"""The limits: the same items put through the same database on the same disk by a bare loop, with no server.

"rows" writes, leases and deletes each item as a row of its own. "blocks" writes a batch as one value with one lease
record, as the server's storage does. Both take three durable transactions for a batch: produced, reserved, completed.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Counts, Load, Window

_LEASE_MS = 60_000
_DURABLE = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


def _open(path: Path, schema: tuple[str, ...]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (*_DURABLE, *schema):
        connection.execute(statement)
    return connection


class RowsLoop:
    """One row per item: insert; select and update; delete."""

    schema = ("CREATE TABLE items (id INTEGER PRIMARY KEY, lease_deadline INTEGER NOT NULL, payload BLOB NOT NULL)",)

    def __init__(self, connection: sqlite3.Connection, payloads: list[bytes]) -> None:
        self._connection = connection
        self._batch = len(payloads)
        self._rows = [(payload,) for payload in payloads]

    def cycle(self) -> int:
        """Put one batch through; how many items went out."""
        execute, executemany = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        executemany("INSERT INTO items (lease_deadline, payload) VALUES (0, ?)", self._rows)
        execute("COMMIT")

        execute("BEGIN IMMEDIATE")
        ready = "SELECT id, payload FROM items WHERE lease_deadline = 0 ORDER BY id LIMIT ?"
        reserved = execute(ready, (self._batch,)).fetchall()
        deadline = time.monotonic_ns() // 1_000_000 + _LEASE_MS
        executemany("UPDATE items SET lease_deadline = ? WHERE id = ?", [(deadline, row[0]) for row in reserved])
        execute("COMMIT")

        execute("BEGIN IMMEDIATE")
        executemany("DELETE FROM items WHERE id = ?", [(row[0],) for row in reserved])
        execute("COMMIT")
        return len(reserved)

    def left(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM items").fetchone()[0])


class BlocksLoop:
    """One value per batch: put the block; put a lease record; delete both. The commit's number goes with each."""

    schema = (
        "CREATE TABLE blocks (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
        "CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE state (id INTEGER PRIMARY KEY, number INTEGER NOT NULL)",
        "INSERT INTO state VALUES (1, 0)",
    )

    def __init__(self, connection: sqlite3.Connection, payloads: list[bytes]) -> None:
        self._connection = connection
        self._batch = len(payloads)
        self._data = b"".join(payloads)
        self._block = 0

    def cycle(self) -> int:
        self._block += 1
        block, key = self._block, self._block.to_bytes(8, "big")
        execute = self._connection.execute
        self._commit(lambda: execute("INSERT INTO blocks VALUES (?, ?)", (block, self._data)))
        self._commit(lambda: execute("INSERT INTO records VALUES (?, ?)", (key, b"lease" * 8)))

        def complete() -> None:
            execute("DELETE FROM blocks WHERE id = ?", (block,))
            execute("DELETE FROM records WHERE key = ?", (key,))

        self._commit(complete)
        return self._batch

    def _commit(self, write: Callable[[], object]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        write()
        self._connection.execute("UPDATE state SET number = number + 1 WHERE id = 1")
        self._connection.execute("COMMIT")

    def left(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM blocks").fetchone()[0]) * self._batch


class BareLoop:
    """The driver of both: one loop, in one thread, since SQLite has one writer."""

    def __init__(self, load: Load, kind: type[RowsLoop | BlocksLoop]) -> None:
        source = random.Random(load.first_client)
        payloads = [source.randbytes(load.payload_bytes) for _ in range(load.batch)]
        self._batch = load.batch
        self._connection = _open(Path(load.address) / f"{load.queue_name}.db", kind.schema)
        self._loop = kind(self._connection, payloads)

    async def connect(self) -> None:
        """There is nothing to connect to."""

    async def run(self, window: Window, counts: Counts) -> None:
        """Never gives up the event loop, on purpose: nothing else runs in this process."""
        latencies = counts.latency("cycle")
        time.sleep(max(0.0, window.start - time.monotonic()))
        began = time.monotonic()
        while began < window.measure_until:
            done = self._loop.cycle()
            counts.produced += self._batch
            counts.completed += done
            ended = time.monotonic()
            latencies.append(ended - began)
            began = ended
        if left := self._loop.left():
            raise RuntimeError(f"{left} items are left in the table of the bare loop")

    async def close(self) -> None:
        self._connection.close()
