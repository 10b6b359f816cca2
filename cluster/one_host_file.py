"""The file of the coordination on one host: plain SQLite, used from one thread. Time comes in with every call.

Who looks applies what is due: a lease ends with the first call of any process after its deadline, or after the end of
the process that held it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from cluster.coordinator import Change, Entry, LeaseLost, Snapshot
from cluster.one_host_holders import Holders

KEPT_REVISIONS = 1000  # a watch that is further behind begins anew
_REVISIONS_AT_ONCE = 100
# A deadline further away than its lease is long is one of before the host's last start. Processes read the clock at
# different moments, thus not to the millisecond.
_CLOCK_SLACK_MS = 1000

_SCHEMA = files("cluster").joinpath("one_host.sql").read_text(encoding="utf-8")
_TEXT = files("cluster").joinpath("one_host_statements.sql").read_text(encoding="utf-8")
_SQL = {
    name.strip(): statement.strip()
    for name, _, statement in (part.partition("\n") for part in _TEXT.split("-- name: ")[1:])
}


class OneHostFile:
    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_s)
        try:
            self._connection.executescript(_SCHEMA)
            self._holders = Holders(path.with_suffix(".d"))
        except (sqlite3.Error, OSError):
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()
        self._holders.close()

    def get(self, key: str, now_ms: int) -> Entry | None:
        self._expire_if_due(now_ms)
        return next((Entry(*row) for row in self._run("entry_get", key)), None)

    def snapshot(self, prefix: str, now_ms: int) -> Snapshot:
        self._expire_if_due(now_ms)
        with self._transaction("BEGIN"):
            rows = self._run("entry_list", prefix, len(prefix)).fetchall()
            return Snapshot(tuple(Entry(*row) for row in rows), self._last())

    def changes(self, prefix: str, position: int) -> tuple[list[Change], int] | None:
        """Some of the changes after a revision, and the revision up to which they are all. None: they are not kept."""
        with self._transaction("BEGIN"):
            last = self._last()
            if position < last - KEPT_REVISIONS or position > last:
                return None
            until = min(last, position + _REVISIONS_AT_ONCE)
            rows = self._run("change_since", position, until, prefix, len(prefix)).fetchall()
            return [Change(*row) for row in rows], until

    def look(self, now_ms: int) -> int:
        """Apply what is due; returns the last revision."""
        self._expire_if_due(now_ms)
        return self._last()

    def transact(
        self,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Sequence[str],
        lease_id: int | None,
        now_ms: int,
    ) -> int | None:
        with self._transaction("BEGIN IMMEDIATE"):
            self._expire(now_ms)
            if lease_id is not None and not self._run("lease_find", lease_id).fetchall():
                raise LeaseLost(lease_id)
            if not all(self._has_revision(key, revision) for key, revision in expected.items()):
                return None
            return self._write(puts, deletes, lease_id)

    def grant(self, ttl_ms: int, now_ms: int) -> int:
        with self._transaction("BEGIN IMMEDIATE"):
            self._expire(now_ms)
            lease_id = int(self._run("lease_grant", ttl_ms, now_ms + ttl_ms).fetchall()[0][0])
            self._run("holder_put", lease_id, self._holders.token())
            return lease_id

    def renew(self, lease_id: int, now_ms: int) -> bool:
        with self._transaction("BEGIN IMMEDIATE"):
            self._expire(now_ms)
            return self._run("lease_renew", lease_id, now_ms).rowcount > 0

    def end(self, lease_id: int) -> int:
        """Returns the last revision."""
        with self._transaction("BEGIN IMMEDIATE"):
            self._end([lease_id])
            return self._last()

    def _has_revision(self, key: str, revision: int) -> bool:
        row = self._run("entry_get", key).fetchone()
        return (row[2] if row else 0) == revision

    def _write(self, puts: Mapping[str, bytes], deletes: Sequence[str], lease_id: int | None) -> int:
        revision = int(self._run("revision_next").fetchall()[0][0])
        for key in dict.fromkeys(deletes):
            if self._run("entry_delete", key).rowcount:
                self._run("held_delete", key)
                self._run("change_add", revision, key, None)
        for key, value in puts.items():
            self._run("entry_put", key, value, revision)
            self._run("change_add", revision, key, value)
            if lease_id is None:
                self._run("held_delete", key)
            else:
                self._run("held_put", key, lease_id)
        self._run("change_trim", revision - KEPT_REVISIONS)
        return revision

    def _expire_if_due(self, now_ms: int) -> None:
        """Readers look first, and become writers only if something is due."""
        if self._due(now_ms):
            with self._transaction("BEGIN IMMEDIATE"):
                self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        self._end(self._due(now_ms))

    def _due(self, now_ms: int) -> list[int]:
        rows = self._run("lease_expired", now_ms, _CLOCK_SLACK_MS).fetchall()
        for (token,) in self._run("holder_all").fetchall():
            if self._holders.is_gone(token):
                rows += self._run("holder_leases", token).fetchall()
        return list({lease_id: None for (lease_id,) in rows})

    def _end(self, lease_ids: Sequence[int]) -> None:
        keys = [key for lease_id in lease_ids for (key,) in self._run("held_by", lease_id).fetchall()]
        for lease_id in lease_ids:
            self._run("lease_end", lease_id)
            self._run("holder_delete", lease_id)
        if keys:
            self._write({}, keys, None)

    def _last(self) -> int:
        return int(self._run("revision_last").fetchall()[0][0])

    def _run(self, name: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(_SQL[name], values)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
