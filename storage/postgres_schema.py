"""The schema in a PostgreSQL database: how it is made, brought up to date, and recognised."""

from __future__ import annotations

import re
from typing import NamedTuple

import asyncpg

from querator.waist import StorageError
from storage.statements import parse_statements, read_sql

SQL = parse_statements(read_sql("postgres_statements.sql"))
PARTITION = read_sql("postgres_partition.sql")
SCHEMA_VERSION = 1

_NEEDS = re.compile(r"-- needs: (\d+)\n")


class Migration(NamedTuple):
    """A step of the schema, applied once and never changed afterwards.

    ``needs`` is the lowest version that a program must know to work beside it: a step that older programs do not
    notice repeats the number of the step before it.
    """

    number: int
    needs: int
    script: str


def read_migrations() -> list[Migration]:
    return [_read_migration(number) for number in range(1, SCHEMA_VERSION + 1)]


def _read_migration(number: int) -> Migration:
    script = read_sql(f"postgres_{number:04}.sql")
    needs = _NEEDS.match(script)
    if needs is None:
        raise ValueError(f"migration {number} does not begin with the version that it needs")
    return Migration(number, int(needs[1]), script)


async def migrate(connection: asyncpg.Connection, schema: str, migrations: list[Migration]) -> None:
    """Apply what is missing, all or nothing; one program at a time. Raises `StorageError` if the schema is too new."""
    known = migrations[-1].number
    if await connection.fetchval(SQL["migrations_exist"]) and await _is_current(connection, schema, known):
        return
    async with connection.transaction():
        await connection.execute(SQL["migrations_lock"], schema)
        # A role that may not make schemas can be given one that is there already.
        if not await connection.fetchval(SQL["schema_exists"], schema):
            await connection.execute(SQL["schema_make"].replace("{schema}", schema))
        if not await connection.fetchval(SQL["migrations_exist"]):
            await connection.execute(SQL["migrations_table"])
        state = await connection.fetchrow(SQL["migrations_state"])
        for migration in migrations[state["number"] :]:
            await connection.execute(migration.script)
            await connection.execute(SQL["migrations_add"], migration.number, migration.needs)


async def _is_current(connection: asyncpg.Connection, schema: str, known: int) -> bool:
    state = await connection.fetchrow(SQL["migrations_state"])
    if state["needs"] > known:
        raise StorageError(
            f"schema '{schema}' has version {state['number']}, which needs a program that knows version "
            f"{state['needs']}; this one knows versions up to {known}"
        )
    return bool(state["number"] >= known)
