"""What instances say to each other. Many messages travel in one frame, however many calls they belong to."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from querator import errors
from querator.errors import InternalError, QueratorError
from querator.inspection import ItemView
from querator.items import Item
from querator.queues import LogicalQueueStats
from querator.requests import Produced, Reservation, RetryItem, Scheduled


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A call. It is answered with `Told` or `Failed`, of the same number."""

    number: int
    call: str
    arguments: msgspec.Raw


class Told(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    number: int
    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    number: int
    kind: str  # the name of the error's class
    constant: str
    details: str

    def error(self) -> QueratorError:
        """The error as it was raised over there."""
        kind = _KINDS.get(self.kind, QueratorError)
        error = kind.__new__(kind)
        QueratorError.__init__(error, self.constant, self.details)
        return error


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Nobody waits for the answer any more."""

    number: int


class Hungry(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """So many reserves of a queue wait at the instance that says this."""

    queue_name: str
    reserves: int


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The instance that says this has so many ready items of a queue, and nobody there who wants them."""

    queue_name: str
    items: int


Message: TypeAlias = Ask | Told | Failed | Cancel | Hungry | Ready

encode = msgspec.msgpack.Encoder().encode
decode_frame = msgspec.msgpack.Decoder(list[Message]).decode


def failed(number: int, error: BaseException) -> Failed:
    """What to answer; an error that nobody foresaw is not told in detail."""
    if not isinstance(error, QueratorError):
        error = InternalError()
    return Failed(number, type(error).__name__, error.constant, error.details)


def _kinds() -> dict[str, type[QueratorError]]:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    return {each.__name__: each for each in classes if issubclass(each, QueratorError)}


_KINDS = _kinds()


class Shape:
    """The types of a call's arguments and of its result."""

    def __init__(self, arguments: Any, result: Any) -> None:
        self.decode_arguments = msgspec.msgpack.Decoder(tuple[arguments]).decode
        self.decode_result = msgspec.msgpack.Decoder(result).decode


Items: TypeAlias = list[Item]

SHAPES: dict[str, Shape] = {
    "produce": Shape((str, Items, list[Scheduled], int, int), Produced),
    "reserve": Shape((str, int, str, int, int), Reservation | None),
    "complete": Shape((str, int, list[str], int), None),
    "retry": Shape((str, int, list[RetryItem], int), None),
    "renew": Shape((str, int, list[str], int, int), int),
    "take_back": Shape((str, int, list[str]), None),
    "deliver": Shape((str, int, int, list[tuple[int, Item]]), None),
    "stats": Shape((str,), list[LogicalQueueStats]),
    "is_open": Shape((str, int), bool),
    "create_partition": Shape((str, int), None),  # backend, uid
    "freeze": Shape((str,), list[LogicalQueueStats]),
    "thaw": Shape((str,), None),
    "clear": Shape((str, bool, bool, bool), None),
    "reload": Shape((str,), None),
    "list_items": Shape((str, int, str, int), list[ItemView]),
    "list_scheduled": Shape((str, int, str, int), list[ItemView]),
    "import_items": Shape((str, int, Items), list[ItemView]),
    "delete_items": Shape((str, int, list[str]), None),
}
