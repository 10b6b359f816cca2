"""Items as a user's program holds them: what it produces, what it has reserved, what it gives back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Self, TypeAlias, TypeVar, overload

import msgspec

from querator import wire
from querator.client_times import DurationLike, duration_ms, duration_text, instant
from querator.durations import to_instant

JSON_ENCODING = "application/json"

T = TypeVar("T")

Payload: TypeAlias = bytes | bytearray | memoryview | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProduceItem:
    """An item to produce.

    The payload is bytes, a text (stored in UTF-8), or a mapping or list, which is stored as JSON with the encoding
    ``application/json`` unless another is given.
    """

    payload: Payload | list[Any]
    _: KW_ONLY
    encoding: str = ""
    kind: str = ""
    reference: str = ""
    enqueue_at: datetime | None = None  # not ready before; with a time zone
    expire_timeout: DurationLike | None = None  # None: the queue's

    def to_wire(self) -> wire.ProduceItem:
        payload, text, encoding = b"", "", self.encoding
        match self.payload:
            case bytes():
                payload = self.payload
            case str():
                text = _check_text(self.payload)
            case bytearray() | memoryview():
                payload = bytes(self.payload)
            case Mapping() | list():
                payload = msgspec.json.encode(self.payload)
                encoding = encoding or JSON_ENCODING
            case _:
                raise TypeError(f"payload must be bytes, a text, a mapping or a list, not {type(self.payload)}")
        return wire.ProduceItem(
            encoding=encoding,
            kind=self.kind,
            reference=self.reference,
            enqueue_at=msgspec.UNSET if self.enqueue_at is None else instant(self.enqueue_at, "enqueue_at"),
            payload=payload,
            utf8=text,
            expire_timeout=duration_text(self.expire_timeout, "expire_timeout"),
        )


Produceable: TypeAlias = Payload | ProduceItem


def wire_items(items: Produceable | Iterable[Produceable]) -> list[wire.ProduceItem]:
    """One item, or each of several. A mapping and a text are one."""
    if isinstance(items, ProduceItem | bytes | bytearray | memoryview | str | Mapping):
        return [wire_item(items)]
    return [wire_item(item) for item in items]


def wire_item(item: Produceable) -> wire.ProduceItem:
    return (item if isinstance(item, ProduceItem) else ProduceItem(item)).to_wire()


def _check_text(text: str) -> str:
    if not text.isprintable():  # which lone surrogates are not; JSON could not carry them
        text.encode()
    return text


@dataclass(frozen=True, slots=True)
class Produced:
    """Where produced items are: durably in this partition, under these ids, in the order of the call."""

    partition: int
    ids: list[str]


class ReservedItem(wire.ReservedItem, kw_only=True):
    """An item under lease. It knows where it is from, so that it can be completed by itself."""

    queue_name: str = ""
    partition: int = 0

    @property
    def text(self) -> str:
        """The payload as text in UTF-8."""
        return self.payload.decode()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = Any) -> Any:
        """The payload read as JSON, into ``kind`` if one is given (a msgspec Struct, a dataclass, ``list[int]``)."""
        return msgspec.json.decode(self.payload, type=kind)


class ReservedBatch(wire.Answer, kw_only=True):
    """Items reserved together, from one partition. Empty, and false, if none came within the time."""

    queue_name: str = ""
    partition: int = 0
    items: list[ReservedItem] = msgspec.field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [item.id for item in self.items]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[ReservedItem]:
        return iter(self.items)

    def __getitem__(self, place: int) -> ReservedItem:
        return self.items[place]

    def mark(self, queue_name: str) -> Self:
        """Tell each item where it is from."""
        self.queue_name = queue_name
        for item in self.items:
            item.queue_name = queue_name
            item.partition = self.partition
        return self


Reserved: TypeAlias = ReservedItem | ReservedBatch | Iterable[ReservedItem]


@dataclass(frozen=True, slots=True)
class Hold:
    """Reserved items of one partition, as a call names them."""

    queue_name: str
    partition: int
    ids: list[str]


def hold_of(what: str | Reserved, partition: int | None, ids: str | Iterable[str] | None) -> Hold:
    """From ``(queue name, partition, ids)``, or from the reserved items themselves."""
    if isinstance(what, str):
        if partition is None or ids is None:
            raise TypeError("name the queue, the partition and the ids, or hand over the reserved items")
        return Hold(what, partition, [ids] if isinstance(ids, str) else list(ids))
    if partition is not None or ids is not None:
        raise TypeError("reserved items know their partition and ids; do not name them again")
    if isinstance(what, ReservedBatch):
        return Hold(what.queue_name, what.partition, what.ids)
    items = [what] if isinstance(what, ReservedItem) else list(what)
    places = {(item.queue_name, item.partition) for item in items}
    if len(places) != 1:
        raise ValueError(f"items of one call must be of one partition, these are of {len(places)}")
    ((queue_name, place),) = places
    return Hold(queue_name, place, [item.id for item in items])


@dataclass(frozen=True, slots=True)
class RetryItem:
    """An item to give back: at once or later, as the queue's retry policy says, or for good."""

    id: str
    _: KW_ONLY
    at: datetime | None = None  # when it is ready again; in the past: at once
    delay: DurationLike | None = None  # in place of `at`
    dead: bool = False  # to the dead queue, or out of the queue if it has none

    def to_wire(self, now_ms: int) -> wire.RetryItem:
        if self.at is not None and self.delay is not None:
            raise ValueError("a retry is either `at` an instant or after a `delay`, not both")
        retry_at: datetime | msgspec.UnsetType = msgspec.UNSET
        if self.at is not None:
            retry_at = instant(self.at, "at")
        elif self.delay is not None:
            retry_at = to_instant(now_ms + duration_ms(self.delay, "delay"))
        return wire.RetryItem(id=self.id, retry_at=retry_at, dead=self.dead)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long an item waits after a retry that names no time: base × factor^(attempts - 1), at most max.

    What is None is left to the server's default, or as it is when a queue is updated.
    """

    base: DurationLike | None = None
    factor: float | None = None
    max: DurationLike | None = None
    jitter: float | None = None  # the delay is spread by up to this part of it, both ways

    def to_wire(self) -> wire.RetryPolicy:
        return wire.RetryPolicy(
            base=msgspec.UNSET if self.base is None else duration_text(self.base, "base"),
            factor=msgspec.UNSET if self.factor is None else self.factor,
            max=msgspec.UNSET if self.max is None else duration_text(self.max, "max"),
            jitter=msgspec.UNSET if self.jitter is None else self.jitter,
        )
