"""What a history says about a queue as a whole: the order of its items, and its counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.history.events import Counted
from tests.history.lives import Delivery, History, Life, Operation, Produced


class Disorder(NamedTuple):
    """Two items that came in the wrong order: the later produced one first."""

    early_produced: Produced
    early: Delivery
    late_produced: Produced
    late: Delivery


class Order(NamedTuple):
    checked: int
    disorders: list[Disorder]


def in_order(history: History, queue: str) -> Order:
    """First in, first out, as far as the queue has one partition and its consumers took turns.

    A produce comes before another if it was answered before the other was asked. Scheduled items and items that come
    back stand at the tail when they do, and are left out.
    """
    if history.facts(queue).partitions != 1:
        return Order(0, [])
    disorders: list[Disorder] = []
    checked = 0
    newest: tuple[Produced, Delivery] | None = None  # handed out so far, by the instant of its produce
    last_of: dict[tuple[str, int], tuple[Produced, Delivery]] = {}  # by produce, the last handed out
    for produced, delivery in _first_hand_outs(history, queue):
        checked += 1
        for earlier in (newest, last_of.get(produced.operation.key)):
            if earlier is not None and _before(produced, earlier[0]):
                disorders.append(Disorder(*earlier, produced, delivery))
                break
        last_of[produced.operation.key] = produced, delivery
        if newest is None or produced.operation.asked.at_ms >= newest[0].operation.asked.at_ms:
            newest = produced, delivery
    return Order(checked, disorders)


def _first_hand_outs(history: History, queue: str) -> Iterator[tuple[Produced, Delivery]]:
    for reserve in _one_at_a_time(history, queue):
        for item in reserve.end.items if reserve.end else ():
            life = history.lives[item.tag]
            first = life.deliveries[0]
            if life.produced is None or life.home != queue or life.produced.sent.enqueue_at_ms:
                continue
            if item.attempts == 1 and first.operation is reserve:
                yield life.produced, first


def _one_at_a_time(history: History, queue: str) -> Iterator[Operation]:
    """The reserves up to the first that was asked before the one before had ended."""
    free_at_ms = 0
    for reserve in history.of("reserve"):
        if reserve.asked.queue == queue:
            if reserve.asked.at_ms < free_at_ms:
                return
            free_at_ms = reserve.returned_at_ms
            yield reserve


def _before(one: Produced, other: Produced) -> bool:
    """Whether the one must stand before the other."""
    if one.operation is other.operation:
        return one.position < other.position
    return one.operation.outcome == "ok" and one.operation.returned_at_ms < other.operation.asked.at_ms


def miscounts(history: History) -> Iterator[str]:
    """Each count, made in a quiet moment, is the number of items that were seen again afterwards."""
    last_seen = [_last_seen_ms(life) for life in history.lives.values()]
    for counted in history.counts:
        contents = 0 if counted.drained else sum(1 for seen_at_ms in last_seen if seen_at_ms > counted.at_ms)
        if counted.items != contents:
            yield _miscount(counted, contents)


def _last_seen_ms(life: Life) -> int:
    seen = [each.operation.returned_at_ms for each in life.deliveries]
    seen += [each.operation.returned_at_ms for each in life.claims if each.operation.outcome == "ok"]
    return max(seen, default=0)


def _miscount(counted: Counted, contents: int) -> str:
    when = "after the drain" if counted.drained else "before the drain"
    return f"at {counted.at_ms}, {when}: the server counts {counted.items} items, and holds {contents}"
