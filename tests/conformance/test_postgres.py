"""What is particular to PostgreSQL: its schema, its roles, TLS, and tables that a snapshot keeps from being cleaned."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench.postgres_server import INSTALL, NOT_DURABLE, Postgres, installed, private_postgres
from querator.errors import InvalidRequest
from querator.waist import Batch, Fenced, Opened, StorageError
from storage import PostgresBackend, open_backend, postgres_connector
from storage.postgres import PostgresPartition
from storage.postgres_options import PostgresOptions
from storage.postgres_schema import Migration, read_migrations
from tests.schemas import new_schema

PASSWORD = "s3cret%2Fword"  # as a dsn has it
PLAIN_PASSWORD = "s3cret/word"


def backend_on(dsn: str, schema: str) -> PostgresBackend:
    options = PostgresOptions(dsn=dsn, schema=schema, connect_timeout="2m", command_timeout="2m")
    return PostgresBackend(name="pg", options=options)


async def ask(server: Postgres, *statements: str) -> Any:
    """Run statements by the superuser; the answer to the last one."""
    connection = await asyncpg.connect(server.address)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


async def test_the_schema_is_made_once_by_many_at_the_same_time(postgres: Postgres) -> None:
    """Backends that start together on a fresh database all work, and each migration is applied once."""
    schema = new_schema()
    backends = [backend_on(postgres.address, schema) for _ in range(8)]
    await asyncio.gather(*(backend.create(uid) for uid, backend in enumerate(backends)))
    assert await backends[0].list() == list(range(8))
    for backend in backends:
        await backend.close()
    assert await ask(postgres, f"SELECT array_agg(number ORDER BY number) FROM {schema}.migration") == [
        migration.number for migration in read_migrations()
    ]


async def test_an_older_schema_is_brought_up_to_date_beside_a_running_program(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer program applies its further migrations; an older one goes on, and may start anew, if none forbids it."""
    schema = new_schema()
    old = backend_on(postgres.address, schema)
    await old.create(1)
    partition = old.partition(1)
    await partition.open(1)
    add = Migration(number=2, needs=1, script="ALTER TABLE partition ADD COLUMN label text NOT NULL DEFAULT ''")
    monkeypatch.setattr(postgres_connector, "read_migrations", lambda: [*read_migrations(), add])
    new = backend_on(postgres.address, schema)
    await new.create(2)
    monkeypatch.undo()
    await partition.commit(Batch(number=1, summary=b"s", blocks={1: b"x"}))
    assert await partition.open(1) == Opened(1, b"s")
    again = backend_on(postgres.address, schema)
    assert await again.list() == [1, 2]
    for backend in (old, new, again):
        await backend.close()
    assert await ask(postgres, f"SELECT max(number) FROM {schema}.migration") == 2


async def test_a_schema_that_needs_a_newer_program_is_refused(postgres: Postgres) -> None:
    """A program that does not know a migration that it would have to know says so, and changes nothing."""
    schema = new_schema()
    backend = backend_on(postgres.address, schema)
    await backend.create(1)
    await backend.close()
    await ask(postgres, f"INSERT INTO {schema}.migration (number, needs) VALUES (7, 7)", "SELECT 1")
    backend = backend_on(postgres.address, schema)
    with pytest.raises(StorageError, match="has version 7"):
        await backend.create(2)
    assert "version 7" in (await backend.health()).details
    await backend.close()
    assert await ask(postgres, f"SELECT count(*) FROM {schema}.partition") == 1


async def test_a_failed_migration_leaves_nothing(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one of several migrations fails, none of them is applied, and the next program starts from the same place."""
    schema = new_schema()
    bad = Migration(number=2, needs=1, script="CREATE TABLE half (x integer); SELECT 1 / 0")
    monkeypatch.setattr(postgres_connector, "read_migrations", lambda: [*read_migrations(), bad])
    backend = backend_on(postgres.address, schema)
    with pytest.raises(StorageError, match="division by zero"):
        await backend.list()
    await backend.close()
    assert await ask(postgres, f"SELECT to_regnamespace('{schema}')") is None


async def test_a_role_that_owns_its_schema_is_enough(postgres: Postgres) -> None:
    """A role without any other right creates, writes, reads and drops; its password is in no answer."""
    schema = new_schema()
    await ask(
        postgres,
        f"CREATE ROLE guarded LOGIN PASSWORD '{PLAIN_PASSWORD}'",
        f"CREATE SCHEMA {schema} AUTHORIZATION guarded",
        "SELECT 1",
    )
    backend = backend_on(f"postgresql://guarded:{PASSWORD}@127.0.0.1:{postgres.port}/postgres", schema)
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b"", blocks={1: b"x"}))
    assert await partition.scan_blocks(1, 2, 1) == [(1, b"x")]
    await backend.drop(1)
    await backend.close()
    wrong = backend_on(f"postgresql://guarded:x{PASSWORD}@127.0.0.1:{postgres.port}/postgres", schema)
    with pytest.raises(StorageError, match="guarded") as caught:
        await wrong.list()
    told = f"{caught.value} {await wrong.health()}"
    assert PASSWORD not in told
    assert PLAIN_PASSWORD not in told
    await wrong.close()


def test_a_password_is_taken_out_of_any_text() -> None:
    """What is shown of a dsn holds host and database; the password is removed from texts in either spelling."""
    for dsn in (f"postgresql://u:{PASSWORD}@h:1,i:2/db", f"postgresql://h:1,i:2/db?password={PASSWORD}"):
        options = PostgresOptions(dsn=dsn)
        assert options.address == "h:1,i:2/db"
        assert options.without_secrets(f"a {PLAIN_PASSWORD} b") == "a *** b"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "dsn"),
        ({"dsn": 7}, "dsn"),
        ({"dsn": "mysql://u:hidden@h/db"}, "dsn"),
        ({"dsn": "postgresql://u:hid#den@h/db"}, "dsn"),
        ({"dsn": "postgresql://u:hidden@h/db?sslmode=maybe"}, "dsn"),
        ({"dsn": "postgresql://u:hidden@[h/db"}, "dsn"),
        ({"dsn": "postgresql://h/db", "schema": "a; DROP"}, "schema"),
        ({"dsn": "postgresql://h/db", "schema": "pg_x"}, "schema"),
        ({"dsn": "postgresql://h/db", "schema": "a" * 64}, "schema"),
        ({"dsn": "postgresql://h/db", "pool_size": 0}, "pool_size"),
        ({"dsn": "postgresql://h/db", "pool_size": True}, "pool_size"),
        ({"dsn": "postgresql://h/db", "connect_timeout": 5}, "connect_timeout"),
        ({"dsn": "postgresql://h/db", "command_timeout": "0s"}, "command_timeout"),
        ({"dsn": "postgresql://h/db", "fast": True}, "fast"),
    ],
)
async def test_a_wrong_option_is_named(tmp_path: Path, options: Mapping[str, object], named: str) -> None:
    """Options are checked before anything is connected to, and no answer repeats the dsn."""
    with pytest.raises(InvalidRequest, match=named) as caught:
        await open_backend(name="b", driver="postgres", affinity=1.0, options=options, data_dir=tmp_path)
    assert "hid" not in f"{caught.value} {caught.value.details}"


async def test_the_driver_is_opened_by_name_without_a_database(tmp_path: Path) -> None:
    """Opening the backend succeeds while nothing listens, and closing it does too."""
    options = {"dsn": "postgresql://u@127.0.0.1:1/db", "schema": "s", "pool_size": 2, "connect_timeout": "1s"}
    backend = await open_backend(name="b", driver="postgres", affinity=0.5, options=options, data_dir=tmp_path)
    assert (backend.name, backend.driver, backend.affinity) == ("b", "postgres", 0.5)
    assert not (await backend.health()).ok
    await backend.close()


async def test_a_session_is_durable_also_if_the_role_is_not(postgres: Postgres) -> None:
    """A default of synchronous_commit = off does not reach our sessions."""
    await ask(
        postgres, "CREATE ROLE careless LOGIN SUPERUSER", "ALTER ROLE careless SET synchronous_commit = off", "SELECT 1"
    )
    backend = backend_on(f"postgresql://careless@127.0.0.1:{postgres.port}/postgres", new_schema())
    assert await backend._readers.fetch("SELECT current_setting('synchronous_commit')") == [("on",)]
    await backend.close()


async def test_a_table_that_was_rewritten_is_found_again(postgres: Postgres) -> None:
    """After VACUUM FULL the rows lie elsewhere, and commits and fencing go on."""
    schema = new_schema()
    backend = backend_on(postgres.address, schema)
    for uid in (1, 2, 3):
        await backend.create(uid)
    partition = backend.partition(3)
    await partition.open(1)
    await partition.commit(Batch(number=1, summary=b""))
    await backend.drop(1)
    place = partition._place
    await ask(postgres, f"VACUUM FULL {schema}.partition", "SELECT 1")
    await partition.commit(Batch(number=2, summary=b"s"))
    assert partition._place != place
    await backend.partition(3).open(2)
    with pytest.raises(Fenced):
        await partition.commit(Batch(number=3, summary=b""))
    await backend.close()


class Explaining:
    """Stands for a connection: runs the commit that it is given, tells what it touched, and takes it back."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.buffers = 0

    async def fetchval(self, statement: str, *arguments: object) -> tuple[int, int]:
        async with self._connection.transaction():
            text = await self._connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *arguments)
            plan = json.loads(text)[0]["Plan"]
            self.buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            raise asyncpg.InterfaceError("taken back")


async def buffers_of_commit(backend: PostgresBackend, partition: PostgresPartition, batch: Batch) -> int:
    """How many pages a commit touches."""

    async def work(connection: asyncpg.Connection) -> int:
        explaining = Explaining(connection)
        assert partition._right is not None
        for _ in range(2):  # the first one makes the plans, for which it reads the catalog
            with pytest.raises(asyncpg.InterfaceError, match="taken back"):
                await partition._write(explaining, partition._right, batch)
        return explaining.buffers

    return await backend._writers.submit(work)


async def cycles(partition: PostgresPartition, first: int, count: int) -> int:
    """Write a block with a lease and remove both, again and again, as a queue does that keeps up. The next number."""
    for number in range(first, first + 2 * count, 2):
        key = b"lease%08d" % number
        await partition.commit(
            Batch(number=number, summary=b"s" * 80, blocks={number: b"x" * 3000}, puts={key: b"v" * 50, b"same": key})
        )
        await partition.commit(Batch(number=number + 1, summary=b"s" * 80, dropped_blocks=[number], deletes=[key]))
    return first + 2 * count


async def test_a_snapshot_that_is_held_open_does_not_make_commits_dearer(postgres: Postgres) -> None:
    """While dead rows must be kept for somebody, a commit touches as few pages after thousands of others as before.

    When the snapshot is gone, vacuum makes room, and the tables stop growing.
    """
    schema = new_schema()
    backend = backend_on(postgres.address, schema)
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    holder = await asyncpg.connect(postgres.address)
    snapshot = holder.transaction(isolation="repeatable_read")
    await snapshot.start()
    await holder.fetchval(f"SELECT count(*) FROM {schema}.partition")

    number = await cycles(partition, 1, 50)
    batch = Batch(number=number, summary=b"s" * 80, blocks={number: b"x"}, puts={b"lease": b""}, dropped_blocks=[1])
    before = await buffers_of_commit(backend, partition, batch)
    number = await cycles(partition, number, 1500)
    batch = Batch(number=number, summary=b"s" * 80, blocks={number: b"x"}, puts={b"lease": b""}, dropped_blocks=[1])
    assert await buffers_of_commit(backend, partition, batch) <= before + 15
    assert await partition.scan_blocks(1, number, 10) == []

    await snapshot.rollback()
    await holder.close()
    sizes = []
    for _ in range(3):
        await ask(
            postgres, f"VACUUM {schema}.partition", f"VACUUM {schema}.block_1", f"VACUUM {schema}.record_1", "SELECT 1"
        )
        number = await cycles(partition, number, 300)
        sizes.append(
            await ask(
                postgres,
                f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = '{schema}'::regnamespace",
            )
        )
    # Two further rounds wrote twice 300 blocks.
    assert sizes[2] < sizes[0] + 300 * 3000
    await backend.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_tls_is_used_and_verified(tmp_path: Path) -> None:
    """With verify-full a server with the right certificate is used, encrypted, and one with another is refused."""
    if installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {INSTALL}")
    for name in ("right", "wrong"):
        command = (
            f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"
        )
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt")]
        subprocess.run([*command.split(), *files], check=True, capture_output=True)
    with private_postgres(NOT_DURABLE, tls=(tmp_path / "right.crt", tmp_path / "right.key")) as server:
        right, wrong = (
            backend_on(f"{server.address}?sslmode=verify-full&sslrootcert={tmp_path / name}.crt", "tls")
            for name in ("right", "wrong")
        )
        assert await right._readers.fetch("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
        with pytest.raises(StorageError, match="certificate"):
            await wrong.list()
        await right.close()
        await wrong.close()
