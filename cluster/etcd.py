"""Coordination by etcd, version 3.4 or later."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

import structlog

from cluster.coordinator import (
    Change,
    CoordinationError,
    Entry,
    Lease,
    LeaseLost,
    Snapshot,
    check_transaction,
)
from cluster.etcd_calls import GRANT, KEEP_ALIVE, RANGE, REVOKE, TXN, WATCH, EtcdError
from cluster.etcd_connection import BACKOFF, EtcdConnection
from cluster.etcd_options import EtcdOptions
from cluster.etcd_proto import etcd_kv_pb2 as kv
from cluster.etcd_proto import etcd_rpc_pb2 as rpc
from cluster.etcd_transaction import transaction
from cluster.lease import host_clock
from querator.clock import Clock, sleep_ms
from querator.lifecycle import backoff_ms

_log = structlog.get_logger(__name__)

_PAGE_ENTRIES = 200


class EtcdCoordinator:
    """Made by `open`, which does not ask for etcd to be there."""

    def __init__(self, options: EtcdOptions, *, clock: Clock, rng: random.Random) -> None:
        self._connection = EtcdConnection(options, clock=clock, rng=rng)
        self._prefix = options.key_prefix()
        self._clock = clock
        self._rng = rng
        self._leases: set[Lease] = set()

    @classmethod
    async def open(
        cls, options: EtcdOptions, *, clock: Clock | None = None, rng: random.Random | None = None
    ) -> EtcdCoordinator:
        rng = rng or random.Random(os.urandom(16))  # noqa: S311 - jitter, not secrets
        return cls(options, clock=clock or host_clock(), rng=rng)

    async def get(self, key: str) -> Entry | None:
        reply = await self._connection.ask(RANGE, rpc.RangeRequest(key=self._key(key)))
        return next((self._entry(each) for each in reply.kvs), None)

    async def list(self, prefix: str) -> list[Entry]:
        return [*(await self._snapshot(prefix)).entries]

    async def transact(
        self,
        *,
        expected: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Sequence[str] = (),
        lease: Lease | None = None,
    ) -> int | None:
        check_transaction(puts, deletes, lease)
        request = transaction(self._key, expected, puts, deletes, 0 if lease is None else lease.id)
        try:
            reply = await self._connection.ask(TXN, request)
        except EtcdError as error:
            if lease is not None and error.is_missing():
                raise LeaseLost(lease.id) from error
            raise
        return reply.header.revision if reply.succeeded else None

    async def grant(self, ttl_ms: int) -> Lease:
        """The time is in whole seconds, since etcd counts so, and no less than its members need to elect a leader."""
        sent_at_ms = self._clock.now_ms()
        reply = await self._connection.ask(GRANT, rpc.LeaseGrantRequest(TTL=-(-ttl_ms // 1000)))
        if reply.error:
            raise CoordinationError(f"etcd grants no lease: {reply.error}")
        self._leases = {lease for lease in self._leases if not lease.lost.is_set()}
        lease = Lease(
            lease_id=reply.ID,
            ttl_ms=reply.TTL * 1000,
            sent_at_ms=sent_at_ms,
            clock=self._clock,
            renew=self._renew,
            end=self._end,
        )
        self._leases.add(lease)
        return lease

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Change, None]:
        """Reads only as fast as the consumer takes; what etcd does not keep for that long becomes a snapshot."""
        failures = 0
        while not self._connection.closed:
            events = self._events(prefix)
            try:
                while (event := await self._next(prefix, events)) is not None:
                    failures = 0
                    yield event
            finally:
                await events.aclose()
            failures += 1
            if not self._connection.closed:
                await sleep_ms(self._clock, backoff_ms(BACKOFF, failures, self._rng))

    async def close(self) -> None:
        if self._connection.closed:
            return
        await asyncio.gather(*(lease.abandon() for lease in self._leases))
        await self._connection.close()

    async def _next(self, prefix: str, events: AsyncGenerator[Snapshot | Change, None]) -> Snapshot | Change | None:
        """None when the stream has ended or failed, whatever the reason: it is begun anew."""
        try:
            return await anext(events, None)
        except CoordinationError as error:
            if not self._connection.closed:
                _log.warning("watch was interrupted", prefix=prefix, error=str(error))
            return None

    async def _events(self, prefix: str) -> AsyncGenerator[Snapshot | Change, None]:
        """A snapshot and the changes after it, until etcd does not go on."""
        snapshot = await self._snapshot(prefix)
        yield snapshot
        start, stop = self._range(prefix)
        # From the snapshot's own revision on: etcd then says so if later history was dropped. Asked from the next one
        # on, it may keep silent about a key whose deletion is the very revision up to which it dropped history.
        create = rpc.WatchCreateRequest(key=start, range_end=stop, start_revision=snapshot.revision, fragment=True)
        replies = self._connection.stream(WATCH, rpc.WatchRequest(create_request=create))
        try:
            async for reply in replies:
                if reply.canceled:
                    compacted = f"the history before revision {reply.compact_revision} is gone"
                    raise CoordinationError(reply.cancel_reason or compacted)
                for change in self._changes(reply):
                    if change.revision > snapshot.revision:
                        yield change
        finally:
            await replies.aclose()

    def _changes(self, reply: rpc.WatchResponse) -> Iterator[Change]:
        for event in reply.events:
            value = None if event.type == kv.Event.DELETE else event.kv.value
            yield Change(self._plain(event.kv.key), value, event.kv.mod_revision)

    async def _snapshot(self, prefix: str) -> Snapshot:
        while True:
            try:
                return await self._pages(prefix)
            except EtcdError as error:
                if not error.is_compacted():  # between two pages
                    raise

    async def _pages(self, prefix: str) -> Snapshot:
        """All pages are of the revision of the first."""
        start, stop = self._range(prefix)
        entries: list[Entry] = []
        revision = 0
        while True:
            request = rpc.RangeRequest(key=start, range_end=stop, limit=_PAGE_ENTRIES, revision=revision)
            reply = await self._connection.ask(RANGE, request)
            revision = revision or reply.header.revision
            entries.extend(self._entry(each) for each in reply.kvs)
            if not reply.more:
                return Snapshot(tuple(entries), revision)
            start = reply.kvs[-1].key + b"\0"

    async def _renew(self, lease_id: int, timeout_ms: int) -> bool:
        reply = await self._connection.ask(KEEP_ALIVE, rpc.LeaseKeepAliveRequest(ID=lease_id), timeout_ms)
        return reply.TTL > 0

    async def _end(self, lease_id: int) -> None:
        try:
            await self._connection.ask(REVOKE, rpc.LeaseRevokeRequest(ID=lease_id))
        except EtcdError as error:
            if not error.is_missing():
                raise

    def _key(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _plain(self, key: bytes) -> str:
        return key.decode().removeprefix(self._prefix)

    def _entry(self, found: kv.KeyValue) -> Entry:
        return Entry(self._plain(found.key), found.value, found.mod_revision)

    def _range(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key with this prefix, and the first behind all of them. UTF-8 has no byte 255."""
        start = self._key(prefix)
        return start, start[:-1] + bytes([start[-1] + 1])
