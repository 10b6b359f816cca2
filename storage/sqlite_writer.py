"""The one thread that writes to an SQLite file, for all of its partitions.

It takes everything that waits, writes it in one transaction and answers it all at once: one fsync and one wake-up of
the event loop, however many partitions have something to write.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from querator.waist import OutcomeUnknown, StorageError
from storage.sqlite_file import SQL, open_for_writing, storage_error

_Result = TypeVar("_Result")

# What a job can raise because of what it was asked to write; the last three come from binding its values.
_JOB_ERRORS = (sqlite3.Error, OverflowError, TypeError, ValueError)


class _Job(NamedTuple):
    future: asyncio.Future[Any]
    run: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Answer(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: StorageError | None


class SqliteWriter:
    """Runs jobs in the order in which they are submitted; those that wait together share a transaction.

    A job is a function that gets the connection and its arguments. It may raise `StorageError` only before it has
    written anything; what it wrote before any other error is rolled back, and its neighbours' writes stay.
    """

    def __init__(self, path: Path, synchronous: str) -> None:
        self.failure = ""  # why the last transaction failed; empty if it did not
        self._path = path
        self._synchronous = synchronous
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stopping = False
        self._closed = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        started: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._live, args=(started,), name=f"sqlite {self._path.name}", daemon=True).start()
        try:
            await started
        except asyncio.CancelledError:
            self._jobs.put(None)
            raise

    def submit(self, run: Callable[..., _Result], *arguments: object) -> asyncio.Future[_Result]:
        """Queue a job. Cancelling the future takes nothing back."""
        if self._closed:
            raise StorageError(f"'{self._path}' is closed")
        future: asyncio.Future[_Result] = self._loop.create_future()
        self._jobs.put(_Job(future, run, arguments))
        return future

    async def close(self) -> None:
        """Do what was submitted, and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)

    def _live(self, started: asyncio.Future[None]) -> None:
        try:
            self._connection = open_for_writing(self._path, self._synchronous)
        except StorageError as error:
            self._closed = True
            self._tell([_Answer(self._ended, None, None), _Answer(started, None, error)])
            return
        self._tell([_Answer(started, None, None)])
        while not self._stopping:
            jobs = self._take()
            if jobs:
                self._tell(self._write_safely(jobs))
        self._let_go()
        self._tell([_Answer(self._ended, None, None)])

    def _take(self) -> list[_Job]:
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        self._stopping = True
        return jobs

    def _write_safely(self, jobs: Sequence[_Job]) -> list[_Answer]:
        try:
            return self._write(jobs)
        except Exception as error:  # noqa: BLE001 the thread must outlive a defect, or every partition of the file hangs
            self._roll_back()
            self.failure = f"{type(error).__name__}: {error}"
            return _refuse(jobs, OutcomeUnknown(f"'{self._path}': {self.failure}"))

    def _write(self, jobs: Sequence[_Job]) -> list[_Answer]:
        """Write all jobs without savepoints, which cost a copy of each page; a failing job is rare."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return self._fail(jobs, error)
        try:
            answers = [self._run(job) for job in jobs]
        except _JOB_ERRORS as error:
            self._roll_back()
            return self._write_apart(jobs) if len(jobs) > 1 else self._fail(jobs, error)
        return self._commit(jobs, answers)

    def _write_apart(self, jobs: Sequence[_Job]) -> list[_Answer]:
        """Write all jobs, each within a savepoint."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            answers = [self._run_apart(job) for job in jobs]
        except sqlite3.Error as error:
            self._roll_back()
            return self._fail(jobs, error)
        return self._commit(jobs, answers)

    def _run(self, job: _Job) -> _Answer:
        try:
            return _Answer(job.future, job.run(self._connection, *job.arguments), None)
        except StorageError as error:
            return _Answer(job.future, None, error)

    def _run_apart(self, job: _Job) -> _Answer:
        self._connection.execute("SAVEPOINT job")
        try:
            answer = self._run(job)
        except _JOB_ERRORS as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO job")
            answer = _Answer(job.future, None, storage_error(self._path, error))
        self._connection.execute("RELEASE job")
        return answer

    def _commit(self, jobs: Sequence[_Job], answers: list[_Answer]) -> list[_Answer]:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return self._fail(jobs, error) if self._settle() else self._leave_unknown(jobs, error)
        self.failure = ""
        return answers

    def _settle(self) -> bool:
        """Whether a COMMIT that failed is surely undone.

        Its pages may be whole in the log, and a crash now would bring them back. The next commit takes their place.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(SQL["file_settle"])
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            return False
        return True

    def _fail(self, jobs: Sequence[_Job], error: Exception) -> list[_Answer]:
        failed = storage_error(self._path, error)
        self.failure = str(failed)
        return _refuse(jobs, failed)

    def _leave_unknown(self, jobs: Sequence[_Job], error: Exception) -> list[_Answer]:
        unknown = OutcomeUnknown(
            f"whether the commit landed shows when it is opened again: {storage_error(self._path, error)}"
        )
        self.failure = str(unknown)
        return _refuse(jobs, unknown)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            # If this fails too, the next BEGIN does and says why.
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _let_go(self) -> None:
        # The last connection copies the log into the file as it closes; this makes it do so durably.
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.close()

    def _tell(self, answers: list[_Answer]) -> None:
        try:
            self._loop.call_soon_threadsafe(_answer, answers)
        except RuntimeError:
            # The event loop was closed without closing the backend; there is nobody to write for.
            self._stopping = True


def _refuse(jobs: Sequence[_Job], error: StorageError) -> list[_Answer]:
    return [_Answer(job.future, None, type(error)(*error.args)) for job in jobs]


def _answer(answers: list[_Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
