"""The server with a bug planted into it, which the checker must find: `python -m tests.crash.buggy BUG serve …`."""

from __future__ import annotations

import asyncio
import sys

import storage.postgres
from querator.cli import main
from querator.waist import Batch
from storage.postgres import PostgresPartition
from storage.postgres_errors import storage_error


def without_doubt() -> None:
    """A commit whose answer is lost is taken for one that was not done."""
    storage.postgres.commit_error = storage_error  # type: ignore[attr-defined]


def too_early() -> None:
    """A commit is answered when it is sent, whatever becomes of it."""

    async def commit(self: PostgresPartition, batch: Batch) -> None:
        right = self._right
        assert right is not None
        if self._in_flight is not None:
            await asyncio.wait({self._in_flight})
        self._in_flight = self._writers.submit(lambda connection: self._write(connection, right, batch))

    PostgresPartition.commit = commit  # type: ignore[method-assign]


BUGS = {bug.__name__: bug for bug in (without_doubt, too_early)}


def program(bug: str) -> list[str]:
    """The command with this bug."""
    return [sys.executable, "-m", "tests.crash.buggy", bug]


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
