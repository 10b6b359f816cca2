"""What goes wrong between us and PostgreSQL, told as the waist's errors."""

from __future__ import annotations

import asyncpg

from querator.waist import Fenced, Missing, OutcomeUnknown, StorageError
from storage.postgres_options import PostgresOptions

# Everything that asyncpg raises; the timeout is that of a connection being made.
DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

# Raised by our own functions (postgres_0001.sql), and by PostgreSQL if a function or table is gone.
_KINDS: dict[str, type[StorageError]] = {
    "QR001": Missing,
    "QR002": Fenced,
    "QR003": StorageError,
    "42883": Missing,
    "42P01": Missing,
}
# The server is read-only: a standby, perhaps since a moment ago. Its connection is of no use to us.
_READ_ONLY = "25006"
# Classes of states in which the connection ends: it is broken, or the server is being stopped.
_ENDING = ("08", "57P")


def ends_connection(error: Exception) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_ENDING) or state == _READ_ONLY
    return not _is_refused_value(error)


def storage_error(options: PostgresOptions, error: Exception) -> StorageError:
    """What became of a statement that changed nothing, or of which it does not matter whether it did."""
    text = f"PostgreSQL at {options.address}: {options.without_secrets(_text(error))}"
    if isinstance(error, asyncpg.PostgresError):
        return _KINDS.get(error.sqlstate or "", StorageError)(text)
    return StorageError(text)


def commit_error(options: PostgresOptions, error: Exception) -> StorageError:
    """What became of a commit. An error that the server answered was followed by a rollback; without an answer, who knows."""
    failed = storage_error(options, error)
    if ends_connection(error) and getattr(error, "sqlstate", "") != _READ_ONLY:
        return OutcomeUnknown(f"whether the commit landed shows when the partition is opened again: {failed}")
    return failed


def _is_refused_value(error: Exception) -> bool:
    """Whether asyncpg could not encode a value, and so has sent nothing."""
    return isinstance(error, asyncpg.DataError | ValueError | TypeError | OverflowError)


def _text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
