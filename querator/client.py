"""The client: one method per call of the API, for asyncio programs.

`querator.sync_client` offers the same to programs without asyncio.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from random import Random, SystemRandom
from types import TracebackType
from typing import Self, Unpack

from querator import wire
from querator.calls import Calls, Health, pages
from querator.client_items import (
    Produceable,
    Produced,
    Reserved,
    ReservedBatch,
    RetryItem,
    hold_of,
    wire_items,
)
from querator.client_queues import QueueOptions, create_request, update_request
from querator.client_routes import can_go_direct
from querator.client_times import DurationLike, duration_s, duration_text
from querator.clock import Clock, SystemClock
from querator.consume import Consumer, grpc_addresses
from querator.consume_calls import Opening
from querator.errors import TimedOut
from querator.producer import Producer
from querator.transport import Backoff, Transport

DEFAULT_ADDRESS = "http://127.0.0.1:2319"
PAGE = 500  # what the iterators ask for at once


class Client:
    """Talks to a Querator server, or to several instances of a cluster, any of which takes any call.

    ``timeout`` is what a call may take with all its attempts. Within it, a call that the server asks to repeat (454,
    429) or that did not arrive is sent again after a growing, jittered delay, to the next address if there is one.

    A produce or import whose answer was lost, or whose answer was 5xx, may have been stored. It is not sent again
    unless ``retry_unknown`` is set, since that may store the items twice; it raises instead. Every other call can be
    repeated without harm, and is.

    In a cluster, ``direct`` sends the calls by which work gets done to the instances that own what they are about: by
    default once a server hints at another one, with True from the beginning, with False never. Where that fails, any
    instance is asked.
    """

    def __init__(
        self,
        *addresses: str,
        timeout: DurationLike = 30.0,
        retry_unknown: bool = False,
        client_id: str = "",
        connections: int = 100,
        direct: bool | None = None,
        connect_timeout: DurationLike = 5.0,
        slack: DurationLike = 5.0,
        backoff: Backoff | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._retry_unknown = retry_unknown
        self._client_id = client_id or f"{socket.gethostname()}-{os.getpid()}"
        self._clock = clock or SystemClock()
        self._addresses = addresses or (DEFAULT_ADDRESS,)
        self._timeout_s = duration_s(timeout, "timeout")
        self._backoff = backoff or Backoff()
        self._random = random or SystemRandom()
        transport = Transport(
            self._addresses,
            connections=connections,
            connect_timeout_s=duration_s(connect_timeout, "connect_timeout"),
            slack_s=duration_s(slack, "slack"),
            backoff=self._backoff,
            random=self._random,
        )
        if direct is None and not can_go_direct(self._addresses):
            direct = False
        self._calls = Calls(transport, self._timeout_s, direct)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed."""
        await self._calls.close()

    # The calls by which work gets done.

    async def produce(
        self,
        queue_name: str,
        items: Produceable | Iterable[Produceable],
        *,
        timeout: DurationLike | None = None,
        retry_unknown: bool | None = None,
    ) -> Produced:
        """Store one item or several, together; when this returns they are durable."""
        request = wire.ProduceRequest(queue_name=queue_name, items=wire_items(items))
        return await self.produce_wire(request, timeout=timeout, retry_unknown=retry_unknown)

    async def produce_wire(
        self, request: wire.ProduceRequest, *, timeout: DurationLike | None = None, retry_unknown: bool | None = None
    ) -> Produced:
        """`produce`, for callers that hold the items in the form of the wire already."""
        repeatable = self._retry_unknown if retry_unknown is None else retry_unknown
        answer = await self._calls.send_timed("queue.produce", request, wire.ProduceAnswer, timeout, repeatable)
        return Produced(answer.partition, answer.ids)

    def producer(
        self,
        queue_name: str,
        *,
        linger: DurationLike = "5ms",
        max_items: int = 1000,
        max_bytes: int = 1_000_000,
        max_requests: int = 4,
        max_waiting: int = 20_000,
        timeout: DurationLike | None = None,
    ) -> Producer:
        """Gathers many single produces into few requests; see `Producer`."""
        return Producer(
            self,
            queue_name,
            linger_s=duration_s(linger, "linger"),
            max_items=max_items,
            max_bytes=max_bytes,
            max_requests=max_requests,
            max_waiting=max_waiting,
            timeout=timeout,
        )

    async def reserve(
        self,
        queue_name: str,
        count: int = 1,
        *,
        timeout: DurationLike | None = None,
        lease_timeout: DurationLike | None = None,
        client_id: str = "",
    ) -> ReservedBatch:
        """Up to ``count`` items under lease, from one partition, as soon as there is one.

        Waits for the first item up to ``timeout``, and then returns an empty batch. If an answer is lost, its items
        come back when their lease ends; the call is repeated for others.
        """
        request = wire.ReserveRequest(
            queue_name=queue_name,
            batch_size=count,
            client_id=client_id or self._client_id,
            lease_timeout=duration_text(lease_timeout, "lease_timeout"),
        )
        try:
            batch = await self._calls.send_timed("queue.reserve", request, ReservedBatch, timeout)
        except TimedOut:
            return ReservedBatch(queue_name=queue_name)
        return batch.mark(queue_name)

    async def complete(
        self,
        what: str | Reserved,
        partition: int | None = None,
        ids: str | Iterable[str] | None = None,
        /,
        *,
        timeout: DurationLike | None = None,
    ) -> None:
        """The work is done: remove the items, which are named as in ``complete(batch)`` or ``complete("mail", 0, ids)``.

        All or nothing; raises `NotLeased` naming an id that is not leased. An empty batch is done already.
        Repeating a complete whose answer was lost can raise `NotLeased` for what the first attempt has completed; the
        error then carries a note that says so.
        """
        hold = hold_of(what, partition, ids)
        if not hold.ids:
            return
        request = wire.CompleteRequest(queue_name=hold.queue_name, partition=hold.partition, ids=hold.ids)
        await self._calls.send_timed("queue.complete", request, wire.Envelope, timeout)

    async def retry(
        self,
        what: str | Reserved,
        partition: int | None = None,
        items: Iterable[RetryItem] | None = None,
        /,
        *,
        at: datetime | None = None,
        delay: DurationLike | None = None,
        dead: bool = False,
        timeout: DurationLike | None = None,
    ) -> None:
        """Give items back: as the queue's retry policy says, ``at`` an instant, after a ``delay``, or as ``dead``.

        All or nothing. With ``(queue name, partition, items)``, each item says this for itself.
        """
        if items is None:
            hold = hold_of(what, partition, None)  # which refuses a queue's name without items
            items = [RetryItem(item_id, at=at, delay=delay, dead=dead) for item_id in hold.ids]
        else:
            if at is not None or delay is not None or dead:
                raise TypeError("with a list of `RetryItem`, each says when and whether dead for itself")
            items = list(items)
            hold = hold_of(what, partition, [item.id for item in items])
        if not hold.ids:
            return
        now_ms = self._clock.now_ms()
        request = wire.RetryRequest(
            queue_name=hold.queue_name, partition=hold.partition, items=[item.to_wire(now_ms) for item in items]
        )
        await self._calls.send("queue.retry", request, wire.Envelope, timeout)

    async def renew(
        self,
        what: str | Reserved,
        partition: int | None = None,
        ids: str | Iterable[str] | None = None,
        /,
        *,
        lease_timeout: DurationLike | None = None,
        timeout: DurationLike | None = None,
    ) -> datetime:
        """Extend the leases, and return their new deadline. All or nothing."""
        hold = hold_of(what, partition, ids)
        request = wire.RenewRequest(
            queue_name=hold.queue_name,
            partition=hold.partition,
            ids=hold.ids,
            lease_timeout=duration_text(lease_timeout, "lease_timeout"),
        )
        answer = await self._calls.send("queue.renew", request, wire.RenewAnswer, timeout)
        return min(item.lease_deadline for item in answer.items)

    def consume(
        self,
        queue_name: str,
        *,
        max_in_flight: int = 100,
        batch_size: int = 0,
        lease_timeout: DurationLike | None = None,
        client_id: str = "",
        release_on_close: bool = False,
        grpc: Sequence[str] = (),
    ) -> Consumer:
        """Items as they get ready, over one stream of gRPC; see `Consumer`. Needs `querator[grpc]`.

        ``grpc`` names the servers' addresses for gRPC; by default each is at the port after that of HTTP.
        """
        opening = Opening(
            queue_name=queue_name,
            client_id=client_id or self._client_id,
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            lease_timeout=duration_text(lease_timeout, "lease_timeout"),
            release_on_close=release_on_close,
        )
        return Consumer(
            grpc_addresses(grpc, self._addresses),
            opening,
            timeout_s=self._timeout_s,
            backoff=self._backoff,
            random=self._random,
            clock=self._clock,
        )

    # Looking after queues.

    async def create_queue(
        self, queue_name: str, *, timeout: DurationLike | None = None, **options: Unpack[QueueOptions]
    ) -> None:
        """Make a queue; what is not given has the server's default."""
        await self._calls.send("queues.create", create_request(queue_name, options), wire.Envelope, timeout)

    async def update_queue(
        self, queue_name: str, *, timeout: DurationLike | None = None, **options: Unpack[QueueOptions]
    ) -> None:
        """Change a queue's settings; what is not given stays as it is."""
        await self._calls.send("queues.update", update_request(queue_name, options), wire.Envelope, timeout)

    async def delete_queue(self, queue_name: str, *, force: bool = False, timeout: DurationLike | None = None) -> None:
        """Remove a queue and its data. One that holds items is only removed with ``force``."""
        request = wire.DeleteRequest(queue_name=queue_name, force=force)
        await self._calls.send("queues.delete", request, wire.Envelope, timeout)

    async def list_queues(
        self, *, pivot: str = "", limit: int = 0, namespace: str = "", timeout: DurationLike | None = None
    ) -> list[wire.QueueInfo]:
        """One page of the queues in the order of their names, from ``pivot`` on. `iter_queues` gives all."""
        request = wire.ListRequest(pivot=pivot, limit=limit, namespace=namespace)
        return (await self._calls.send("queues.list", request, wire.ListAnswer, timeout)).items

    async def iter_queues(self, *, namespace: str = "", page: int = PAGE) -> AsyncIterator[wire.QueueInfo]:
        """All queues, in the order of their names, asked for page by page."""

        async def ask(pivot: str, limit: int) -> list[wire.QueueInfo]:
            return await self.list_queues(pivot=pivot, limit=limit, namespace=namespace)

        async for queue in pages(ask, lambda queue: queue.queue_name, page):
            yield queue

    async def queue_info(self, queue_name: str, *, timeout: DurationLike | None = None) -> wire.QueueInfo:
        return await self._calls.send("queues.info", wire.InfoRequest(queue_name=queue_name), wire.QueueInfo, timeout)

    async def stats(self, queue_name: str, *, timeout: DurationLike | None = None) -> wire.StatsAnswer:
        """What the queue holds and who waits for it, answered from the server's memory."""
        return await self._calls.send(
            "queue.stats", wire.StatsRequest(queue_name=queue_name), wire.StatsAnswer, timeout
        )

    async def clear(
        self,
        queue_name: str,
        *,
        queue: bool = True,
        scheduled: bool = False,
        destructive: bool = False,
        timeout: DurationLike | None = None,
    ) -> None:
        """Remove ready items (``queue``) and scheduled ones; ``destructive`` takes leased items too."""
        request = wire.ClearRequest(queue_name=queue_name, queue=queue, scheduled=scheduled, destructive=destructive)
        await self._calls.send("queue.clear", request, wire.Envelope, timeout)

    async def reload(self, queue_name: str, *, timeout: DurationLike | None = None) -> None:
        """Make the server read the queue's state from its storage again."""
        await self._calls.send("queue.reload", wire.ReloadRequest(queue_name=queue_name), wire.Envelope, timeout)

    async def pause(
        self,
        queue_name: str,
        *,
        produce: bool = False,
        reserve: bool = False,
        timeout: DurationLike | None = None,
    ) -> None:
        """Stop produces, reserves, or both if neither is named, until `resume`."""
        request = wire.PauseRequest(queue_name=queue_name, produce=produce, reserve=reserve)
        await self._calls.send("queue.pause", request, wire.Envelope, timeout)

    async def resume(
        self,
        queue_name: str,
        *,
        produce: bool = False,
        reserve: bool = False,
        timeout: DurationLike | None = None,
    ) -> None:
        """Undo `pause` for produces, reserves, or both if neither is named."""
        request = wire.PauseRequest(queue_name=queue_name, produce=produce, reserve=reserve)
        await self._calls.send("queue.resume", request, wire.Envelope, timeout)

    # Looking at the cluster.

    async def cluster_info(
        self, *, pivot: str = "", limit: int = 0, timeout: DurationLike | None = None
    ) -> wire.ClusterInfoAnswer:
        """Who is in the cluster, who leads, and one page of the logical queues, from ``pivot`` (`name~number`) on."""
        request = wire.ClusterInfoRequest(pivot=pivot, limit=limit)
        return await self._calls.send("cluster.info", request, wire.ClusterInfoAnswer, timeout)

    async def cluster_route(self, queue_name: str, *, timeout: DurationLike | None = None) -> wire.ClusterRouteAnswer:
        """Who owns each partition of a queue, and where that is."""
        return await self._calls.route(queue_name, timeout)

    async def iter_logical_queues(self, *, page: int = PAGE) -> AsyncIterator[wire.LogicalQueueInfo]:
        """All logical queues, in the order of queue names and numbers, asked for page by page."""

        async def ask(pivot: str, limit: int) -> list[wire.LogicalQueueInfo]:
            return (await self.cluster_info(pivot=pivot, limit=limit)).logical_queues

        async for found in pages(ask, lambda each: f"{each.queue_name}~{each.number}", page):
            yield found

    # Looking into partitions.

    async def list_items(
        self,
        queue_name: str,
        partition: int = 0,
        *,
        pivot: str = "",
        limit: int = 0,
        timeout: DurationLike | None = None,
    ) -> list[wire.StorageItem]:
        """One page of a partition's items in order, from the id ``pivot`` on; nothing gets leased."""
        return await self._list("storage/items.list", queue_name, partition, pivot, limit, timeout)

    async def iter_items(
        self, queue_name: str, partition: int = 0, *, page: int = PAGE
    ) -> AsyncIterator[wire.StorageItem]:
        async for item in self._iter("storage/items.list", queue_name, partition, page):
            yield item

    async def list_scheduled(
        self,
        queue_name: str,
        partition: int = 0,
        *,
        pivot: str = "",
        limit: int = 0,
        timeout: DurationLike | None = None,
    ) -> list[wire.StorageItem]:
        """One page of a partition's scheduled items, the earliest first."""
        return await self._list("storage/scheduled.list", queue_name, partition, pivot, limit, timeout)

    async def iter_scheduled(
        self, queue_name: str, partition: int = 0, *, page: int = PAGE
    ) -> AsyncIterator[wire.StorageItem]:
        async for item in self._iter("storage/scheduled.list", queue_name, partition, page):
            yield item

    async def import_items(
        self,
        queue_name: str,
        partition: int,
        items: Iterable[wire.StorageItem],
        *,
        timeout: DurationLike | None = None,
        retry_unknown: bool | None = None,
    ) -> list[wire.StorageItem]:
        """Write items with all their attributes into a partition; returns them as stored, with their new ids."""
        request = wire.ImportRequest(queue_name=queue_name, partition=partition, items=list(items))
        repeatable = self._retry_unknown if retry_unknown is None else retry_unknown
        answer = await self._calls.send("storage/items.import", request, wire.StorageListAnswer, timeout, repeatable)
        return answer.items

    async def delete_items(
        self, queue_name: str, partition: int, ids: str | Iterable[str], *, timeout: DurationLike | None = None
    ) -> None:
        """Remove items from a partition, whatever their state."""
        named = [ids] if isinstance(ids, str) else list(ids)
        request = wire.StorageDeleteRequest(queue_name=queue_name, partition=partition, ids=named)
        await self._calls.send("storage/items.delete", request, wire.Envelope, timeout)

    async def health(self, *, timeout: DurationLike | None = None) -> Health:
        """What the first server that answers says of itself; also when that is not good."""
        return await self._calls.health(timeout)

    async def _list(
        self, method: str, queue_name: str, partition: int, pivot: str, limit: int, timeout: DurationLike | None
    ) -> list[wire.StorageItem]:
        request = wire.StorageListRequest(queue_name=queue_name, partition=partition, pivot=pivot, limit=limit)
        return (await self._calls.send(method, request, wire.StorageListAnswer, timeout)).items

    def _iter(self, method: str, queue_name: str, partition: int, page: int) -> AsyncIterator[wire.StorageItem]:
        async def ask(pivot: str, limit: int) -> list[wire.StorageItem]:
            return await self._list(method, queue_name, partition, pivot, limit, None)

        return pages(ask, lambda item: item.id, page)
