"""The relay: carries items from the outboxes of a logical queue's partitions to the queues they are meant for.

An entry is deleted after it has arrived. If that is not known, it is sent again, and the receiving partition, which
remembers the last entry that it took from each sender, does not take it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog

from querator import records
from querator.clock import sleep_ms
from querator.errors import QueratorError
from querator.items import Item
from querator.logical_queue import LogicalQueue
from querator.member import Member, Status
from querator.requests import Settle
from querator.waist import StorageError

_log = structlog.get_logger(__name__)

_PAGE = 500
_PAUSE_FIRST_MS = 100
_PAUSE_LAST_MS = 5_000

Entries: TypeAlias = list[tuple[int, Item]]
# Hands entries, in order, to the queue of that name; returns when they are durable there.
Deliver: TypeAlias = Callable[[str, int, Entries], Awaitable[None]]


class Relay:
    def __init__(self, logical_queue: LogicalQueue, deliver: Deliver) -> None:
        self._logical_queue = logical_queue
        self._deliver = deliver

    async def run(self) -> None:
        """Relay for ever; ends by being cancelled."""
        pause_ms = _PAUSE_FIRST_MS
        while True:
            self._logical_queue.progress.clear()
            senders = [member for member in self._logical_queue.members.values() if _has_mail(member)]
            if not senders:
                await self._logical_queue.progress.wait()
            elif all([await self._relay(member) for member in senders]):
                pause_ms = _PAUSE_FIRST_MS
            else:
                await sleep_ms(self._logical_queue.clock, pause_ms)
                pause_ms = min(_PAUSE_LAST_MS, 2 * pause_ms)

    async def _relay(self, member: Member) -> bool:
        """Send the head of one outbox. False if something must wait."""
        try:
            page = await member.state.stored.scan(*records.all_of(records.OUTBOX), _PAGE)
        except StorageError as error:
            _log.warning("outbox cannot be read", queue=self._logical_queue.queue.name, error=str(error))
            return False
        by_target: dict[str, Entries] = {}
        for key, value in page:
            entry = records.decode_outbox(value)
            by_target.setdefault(entry.target, []).append((records.key_number(key), entry.item))
        return all([await self._send(member, target, entries) for target, entries in by_target.items()])

    async def _send(self, member: Member, target: str, entries: Entries) -> bool:
        logical_queue = self._logical_queue
        try:
            await self._deliver(target, member.state.place.uid, entries)
            await logical_queue.request(
                member.number, lambda future: Settle(future, member.number, [sequence for sequence, _ in entries])
            )
        except QueratorError as error:
            _log.warning("items wait in the outbox", queue=logical_queue.queue.name, to=target, error=error.message)
            return False
        return True


def _has_mail(member: Member) -> bool:
    return member.status is Status.AVAILABLE and member.state.summary.outbox > 0
