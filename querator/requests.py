"""What may be asked of a logical queue, and what it answers.

The five hot requests carry the future by which they are answered. A request whose future is cancelled is dropped
wherever it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from querator.errors import QueratorError
from querator.items import NEVER_MS, Item, format_ids

if TYPE_CHECKING:
    from querator.turn import Turn


class Run(NamedTuple):
    """Neighbouring items of one block."""

    block_id: int
    start: int  # the slot of the first
    items: list[Item]
    fresh: bool = False  # known to be in their first hand-out

    def ids(self) -> list[str]:
        """The ids of the present hand-out of these items."""
        return format_ids(self.block_id, self.start, self.items, first=self.fresh)


class Produced(NamedTuple):
    """A produce that is durable."""

    partition: int
    runs: list[Run]  # of the items that are ready; ids of a first hand-out
    scheduled_ids: list[str]


class Reservation(NamedTuple):
    """Items handed out together, from one partition, under one lease."""

    partition: int
    lease_deadline_ms: int
    runs: list[Run]


class Scheduled(NamedTuple):
    due_at_ms: int
    item: Item


class RetryItem(NamedTuple):
    id: str
    retry_at_ms: int = 0  # 0: as the queue's retry policy says
    dead: bool = False


class Request:
    """What waits in an inbox. The concrete kinds follow."""

    __slots__ = ("deadline_ms", "future")
    late: ClassVar[str] = "it could not be stored in time"  # what is told at the deadline

    def __init__(self, deadline_ms: int, future: asyncio.Future[Any]) -> None:
        self.deadline_ms = deadline_ms
        self.future = future


class Produce(Request):
    """Answered with `Produced` once all items are durable, together, in one partition."""

    __slots__ = ("items", "scheduled", "size")

    def __init__(
        self,
        deadline_ms: int,
        future: asyncio.Future[Produced],
        items: list[Item],
        scheduled: list[Scheduled],
        size: int,
    ) -> None:
        super().__init__(deadline_ms, future)
        self.items = items
        self.scheduled = scheduled
        self.size = size  # of the payloads, in bytes


class Reserve(Request):
    """Answered with a `Reservation` of at least one item; waits for one until its deadline."""

    __slots__ = ("batch_size", "client_id", "lease_timeout_ms")
    late = "no items were ready"

    def __init__(
        self,
        deadline_ms: int,
        future: asyncio.Future[Reservation],
        batch_size: int,
        client_id: str,
        lease_timeout_ms: int,
    ) -> None:
        super().__init__(deadline_ms, future)
        self.batch_size = batch_size
        self.client_id = client_id
        self.lease_timeout_ms = lease_timeout_ms  # 0: the queue's

    def move_out(self) -> Reserve:
        """The same, to be answered elsewhere. What is decided for this one finds that its caller has gone."""
        other = Reserve(self.deadline_ms, self.future, self.batch_size, self.client_id, self.lease_timeout_ms)
        self.future = self.future.get_loop().create_future()
        self.future.cancel()
        return other


class Complete(Request):
    """Answered with None once all items are gone. All or nothing."""

    __slots__ = ("ids", "partition")

    def __init__(self, deadline_ms: int, future: asyncio.Future[None], partition: int, ids: list[str]) -> None:
        super().__init__(deadline_ms, future)
        self.partition = partition
        self.ids = ids


class Retry(Request):
    """Answered with None once all items are given back. All or nothing."""

    __slots__ = ("items", "partition")

    def __init__(self, deadline_ms: int, future: asyncio.Future[None], partition: int, items: list[RetryItem]) -> None:
        super().__init__(deadline_ms, future)
        self.partition = partition
        self.items = items


class Renew(Request):
    """Answered with the new deadline in ms, the same for all ids. All or nothing."""

    __slots__ = ("ids", "lease_timeout_ms", "partition")

    def __init__(
        self,
        deadline_ms: int,
        future: asyncio.Future[int],
        partition: int,
        ids: list[str],
        lease_timeout_ms: int,
    ) -> None:
        super().__init__(deadline_ms, future)
        self.partition = partition
        self.ids = ids
        self.lease_timeout_ms = lease_timeout_ms  # 0: the queue's


class Deliver(Request):
    """Items from another partition's outbox, in order. Answered with None once they are durable, each once."""

    __slots__ = ("entries", "partition", "source_uid")

    def __init__(
        self, future: asyncio.Future[None], partition: int, source_uid: int, entries: list[tuple[int, Item]]
    ) -> None:
        super().__init__(NEVER_MS, future)
        self.partition = partition
        self.source_uid = source_uid
        self.entries = entries  # sequence in the outbox, item


class Settle(Request):
    """Entries of the outbox that arrived, and can go. Answered with None."""

    __slots__ = ("partition", "sequences")

    def __init__(self, future: asyncio.Future[None], partition: int, sequences: list[int]) -> None:
        super().__init__(NEVER_MS, future)
        self.partition = partition
        self.sequences = sequences


class Change(Request):
    """Anything rare: a function that adds to a turn, answered with what it returned, once that is durable."""

    __slots__ = ("partition", "plan")

    def __init__(self, future: asyncio.Future[Any], partition: int, plan: Callable[[Turn], Any]) -> None:
        super().__init__(NEVER_MS, future)
        self.partition = partition
        self.plan = plan


class Later(Exception):
    """The request touches what this turn already changes: it belongs to the next one."""


class Unread(Exception):
    """The request needs the items of these blocks, and not all of them are in memory."""

    def __init__(self, block_ids: set[int]) -> None:
        self.block_ids = block_ids


def refuse(requests: Iterable[Request], error: QueratorError) -> None:
    """Answer those that are not answered yet with an error."""
    for request in list(requests):
        if not request.future.done():
            request.future.set_exception(error)
