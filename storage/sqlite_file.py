"""An SQLite file: how it is made, opened and recognised, for the writer and for readers beside it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from querator.waist import StorageError
from storage.statements import parse_statements, read_sql

SCHEMA_VERSION = 1
SYNCHRONOUS = ("full", "normal", "off")
SQL = parse_statements(read_sql("sqlite_statements.sql"))

# Measured with blocks of 250 B to 200 KB: smaller pages cost large blocks more than they save for small ones.
PAGE_BYTES = 8192
# Large enough that the checkpoint's fsync is rare, small enough to be read within a moment after a crash.
CHECKPOINT_BYTES = 16 << 20
# A reader can hold the log open longer; once it is let go, the file is cut back to this.
LOG_BYTES = 64 << 20
WRITER_CACHE_KIB = 16 << 10
READER_CACHE_KIB = 8 << 10
BUSY_TIMEOUT_S = 5.0
# Statements are per partition; each prepared one holds a few kilobytes.
PREPARED_STATEMENTS = 2048


def storage_error(path: Path, error: Exception) -> StorageError:
    """What went wrong with a file, for people."""
    hint = ""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorname", "")
        hint = f" ({code})" if code else ""
    return StorageError(f"'{path}': {error}{hint}")


def file_uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def open_for_writing(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open the file, and make it if it is not there. Everything that can be wrong with it is told as `StorageError`."""
    try:
        _make_folder(path.absolute().parent)
        connection = sqlite3.connect(
            file_uri(path, "rwc"),
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            cached_statements=PREPARED_STATEMENTS,
        )
    except (sqlite3.Error, OSError) as error:
        raise storage_error(path, error) from error
    try:
        _configure(connection, synchronous)
        _make_schema(connection, path)
        _sync_folder(path.absolute().parent)
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise storage_error(path, error) from error
    except StorageError:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, synchronous: str) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"the file cannot have a write-ahead log (journal mode is {mode})")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[SYNCHRONOUS.index(synchronous)]}")
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}").fetchall()
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}").fetchall()
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    # Pages that are mapped count as memory of this process, and the kernel caches the file anyway.
    connection.execute("PRAGMA mmap_size = 0").fetchall()


def _make_schema(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    tables = {name for (name,) in connection.execute(SQL["file_tables"]).fetchall()}
    if not tables:
        _execute_all(connection, read_sql("sqlite_schema.sql"))
    elif "querator_file" not in tables:
        raise StorageError(f"'{path}' is a database of another program")
    ((version,),) = connection.execute(SQL["file_version"]).fetchall()
    if version > SCHEMA_VERSION:
        raise StorageError(f"'{path}' has version {version}; this program knows versions up to {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    # executescript would commit the transaction that holds all of it together.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable: a file that was synced can still be lost with its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
