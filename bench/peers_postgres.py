"""PostgreSQL with SKIP LOCKED, as a peer: a private cluster with its defaults of durability, and a client on asyncpg."""

from __future__ import annotations

import asyncio
import os
import pwd
import random
import shutil
import subprocess
import time
from pathlib import Path

import asyncpg

from bench.measure import Counts, Load, Window
from bench.ports import free_port, wait_for_port

INSTALL = "apt-get install postgresql"
_BINARIES = Path("/usr/lib/postgresql")
_USERS = ("postgres", "nobody")  # PostgreSQL refuses to run as root
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    # A queue's table is all dead rows; with the default of a minute between two looks the peer would drown in them.
    "autovacuum_naptime": "1s",
}

_CREATE = """
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease_deadline timestamptz,
    payload bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {table}_ready ON {table} (id) WHERE lease_deadline IS NULL;
"""
_PRODUCE = "INSERT INTO {table} (payload) SELECT unnest($1::bytea[])"
_RESERVE = """
UPDATE {table} SET lease_deadline = now() + interval '1 minute'
WHERE id IN (
    SELECT id FROM {table} WHERE lease_deadline IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
RETURNING id, payload
"""
_COMPLETE = "DELETE FROM {table} WHERE id = ANY($1::bigint[])"


def installed() -> Path | None:
    """The folder of the newest version's programs, if there is one."""
    found = [path.parent for path in _BINARIES.glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name)) if found else None


def _other_user() -> str | None:
    """Whom to run as: nobody else, unless we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in _USERS if user in known)


class Postgres:
    """A private cluster in a folder of its own, on a port of its own, gone after `stop`."""

    def __init__(self, folder: Path) -> None:
        binaries = installed()
        if binaries is None:
            raise FileNotFoundError(f"PostgreSQL is not installed; {INSTALL}")
        self._binaries = binaries
        self._folder = folder
        self._user = _other_user()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        self._folder.mkdir()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        data = self._folder / "data"
        initdb = [str(self._binaries / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8"]
        subprocess.run(initdb, check=True, user=self._user, cwd=self._folder, stdout=subprocess.DEVNULL)
        port = free_port()
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        command = [str(self._binaries / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1"]
        with (self._folder.parent / "postgres.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-k", str(self._folder), *options],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for_port("127.0.0.1", port, self._process)
        self.address = f"postgresql://bench@127.0.0.1:{port}/postgres"
        asyncio.run(self._wait_until_open())

    async def _wait_until_open(self) -> None:
        """The port answers a moment before the database does."""
        while True:
            try:
                connection = await asyncpg.connect(self.address)
            except asyncpg.CannotConnectNowError:
                await asyncio.sleep(0.01)
            else:
                await connection.close()
                return

    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class PostgresCycle:
    """The driver: full cycles, all clients on one table of their own."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._table = load.queue_name.replace("-", "_")
        source = random.Random(load.first_client)
        self._payloads = [source.randbytes(load.payload_bytes) for _ in range(load.batch)]
        self._connections: list[asyncpg.Connection] = []

    def _sql(self, text: str) -> str:
        return text.format(table=self._table)

    async def connect(self) -> None:
        for _ in range(self._load.clients):
            self._connections.append(await asyncpg.connect(self._load.address))
        await self._connections[0].execute(self._sql(_CREATE))

    async def run(self, window: Window, counts: Counts) -> None:
        await asyncio.sleep(max(0.0, window.start - time.monotonic()))
        await asyncio.gather(*[self._loop(connection, window, counts) for connection in self._connections])
        await self._drain(counts)
        left = await self._connections[0].fetchval(self._sql("SELECT count(*) FROM {table}"))
        if left:
            raise RuntimeError(f"{left} items are left in PostgreSQL's table")

    async def _loop(self, connection: asyncpg.Connection, window: Window, counts: Counts) -> None:
        produce = await connection.prepare(self._sql(_PRODUCE))
        reserve = await connection.prepare(self._sql(_RESERVE))
        complete = await connection.prepare(self._sql(_COMPLETE))
        latencies = {call: counts.latency(call) for call in ("produce", "reserve", "complete")}
        batch = self._load.batch
        while (began := time.monotonic()) < window.measure_until:
            await produce.fetch(self._payloads)
            counts.produced += batch
            produced = time.monotonic()
            # Rows that others hold are skipped, so that a reserve may come back with nothing.
            while not (rows := await reserve.fetch(batch)):
                counts.retries += 1
            reserved = time.monotonic()
            await complete.fetch([row["id"] for row in rows])
            counts.completed += len(rows)
            latencies["produce"].append(produced - began)
            latencies["reserve"].append(reserved - produced)
            latencies["complete"].append(time.monotonic() - reserved)

    async def _drain(self, counts: Counts) -> None:
        """Skipped rows leave a rest behind."""
        connection = self._connections[0]
        while rows := await connection.fetch(self._sql(_RESERVE), self._load.batch):
            await connection.execute(self._sql(_COMPLETE), [row["id"] for row in rows])
            counts.completed += len(rows)

    async def close(self) -> None:
        await self._connections[0].execute(self._sql("DROP TABLE {table}"))
        for connection in self._connections:
            await connection.close()
