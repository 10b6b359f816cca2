"""What goes over a consumer's stream, both ways, in the client's own types."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from querator import wire
from querator.client_items import ReservedItem
from querator.errors import QueratorError

StreamRequest: TypeAlias = wire.CompleteRequest | wire.RetryRequest | wire.RenewRequest | int  # a number: max_in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a stream is asked for when it is opened."""

    queue_name: str
    client_id: str
    batch_size: int  # 0: as many as the server allows
    max_in_flight: int
    lease_timeout: str  # empty: the queue's
    release_on_close: bool


class Ack(NamedTuple):
    sequence: int
    error: QueratorError | None
    lease_deadline: datetime | None  # of a renew


class Received(NamedTuple):
    items: list[ReservedItem]
    acks: list[Ack]


@dataclass(slots=True, eq=False)
class Asked:
    """A call that is to be acknowledged, on whichever stream."""

    sequence: int
    request: StreamRequest
    answer: asyncio.Future[Ack]
    sent: int = 0  # on how many streams


def ids_of(request: StreamRequest) -> list[str]:
    """The items that a request is about."""
    match request:
        case wire.CompleteRequest() | wire.RenewRequest():
            return request.ids
        case wire.RetryRequest():
            return [item.id for item in request.items]
        case int():
            return []
