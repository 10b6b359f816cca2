"""Reads a history and names every promise that it shows broken. Its time grows with the events, and no faster.

It accuses only on proof: a call whose outcome nobody knows may have happened or not, and a reserve whose answer was lost
holds a lease that nobody knows of. What such a call would have had to do together, it must have done together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.history.events import Event
from tests.history.lives import Claimed, Delivery, History, Life
from tests.history.order import Disorder, in_order, miscounts

# The server's clock is read after a restart from the same wall clock, which another program may be adjusting.
CLOCK_TOLERANCE_MS = 10


class Violation(NamedTuple):
    kind: str
    tag: str
    evidence: tuple[str, ...]  # the events that prove it

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.tag}", *self.evidence])


class Report(NamedTuple):
    violations: list[Violation]
    produced: int  # items whose produce was answered 200
    completed: int
    in_doubt: int  # of those that were produced, the ones that a complete with unknown outcome may have ended
    redelivered: int  # hand-outs after the first
    unknown: int  # calls whose outcome nobody knows
    ordered: int  # hand-outs whose order was checked

    def kinds(self) -> set[str]:
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        return (
            f"produced {self.produced}, completed {self.completed}, in doubt {self.in_doubt}, redelivered {self.redelivered}, "
            f"unknown {self.unknown}, ordered {self.ordered}, violations {len(self.violations)}"
        )


def check(events: Iterable[Event]) -> Report:
    """The history must be whole: after the last call everything that was left had been reserved and completed."""
    history = History(events)
    found = [Violation("tag used twice", two[0].sent.tag, _texts(two)) for two in history.sent_twice]
    for life in history.lives.values():
        for rule in _RULES:
            found += rule(history, life)
    found += _missing(history)
    ordered = 0
    for queue in history.queues:
        result = in_order(history, queue)
        ordered += result.checked
        found += [_out_of_order(each) for each in result.disorders]
    found += [Violation("counts differ from contents", "", (text,)) for text in miscounts(history)]
    return _report(history, found, ordered)


def _report(history: History, found: list[Violation], ordered: int) -> Report:
    lives = history.lives.values()
    produced = [life for life in lives if life.produced and life.produced.operation.outcome == "ok"]
    return Report(
        violations=found,
        produced=len(produced),
        completed=sum(1 for life in lives if life.completes("ok")),
        in_doubt=sum(1 for life in produced if life.completes("unknown") and not life.completes("ok")),
        redelivered=sum(max(0, len(life.deliveries) - 1) for life in lives),
        unknown=sum(1 for operation in history.operations if operation.outcome == "unknown"),
        ordered=ordered,
    )


def _texts(things: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(thing) for thing in things if thing is not None)


def _violation(kind: str, life: Life, *evidence: object) -> Violation:
    return Violation(kind, life.tag, _texts([life.produced, *evidence]))


def _out_of_order(disorder: Disorder) -> Violation:
    return Violation("out of order", disorder.late.item.tag, _texts(disorder))


# What may be handed out.


def _from_nowhere(_: History, life: Life) -> Iterator[Violation]:
    """Nothing is handed out that nobody produced, or whose produce was refused, or before it was produced."""
    for delivery in life.deliveries[:1]:
        if life.produced is None:
            yield _violation("from nowhere", life, delivery)
        elif life.produced.operation.outcome == "failed":
            yield _violation("refused and yet there", life, delivery)
        elif delivery.operation.returned_at_ms < life.produced.operation.asked.at_ms:
            yield _violation("from nowhere", life, delivery)


def _wrong_queue(history: History, life: Life) -> Iterator[Violation]:
    if life.produced is None:
        return
    allowed = {life.home, history.facts(life.home).dead_queue}
    for delivery in life.deliveries:
        if delivery.operation.asked.queue not in allowed:
            yield _violation("in the wrong queue", life, delivery)


def _too_early(_: History, life: Life) -> Iterator[Violation]:
    """A scheduled item is not ready before its time, whether it was produced so or given back so."""
    if life.produced is None:
        return
    due_at_ms = life.produced.sent.enqueue_at_ms
    for delivery in life.deliveries[:1]:
        if delivery.granted_at_ms < due_at_ms - CLOCK_TOLERANCE_MS:
            yield _violation("too early", life, delivery)
    for retry in life.retries("ok"):
        following = next((each for each in life.deliveries if each.rank > retry.rank), None)
        # An item that died of the retry is in the dead queue at once.
        if (
            following
            and following.stage == retry.stage
            and following.granted_at_ms < retry.claim.retry_at_ms - CLOCK_TOLERANCE_MS
        ):
            yield _violation("too early", life, retry, following)


def _attempts(history: History, life: Life) -> Iterator[Violation]:
    """Each hand-out counts once; one that nobody saw is explained by an answer that was lost."""
    for stage in (0, 1):
        deliveries = [delivery for delivery in life.deliveries if delivery.stage == stage]
        for known, delivery in enumerate(deliveries, 1):
            queue = delivery.operation.asked.queue
            attempts, most = delivery.item.attempts, history.facts(queue).max_attempts
            if most and attempts > most:
                yield _violation("too many attempts", life, delivery)
            if attempts - known > history.lost_reserves[queue]:
                yield _violation("handed out to nobody", life, *deliveries[:known])
                break


def _dead_without_reason(history: History, life: Life) -> Iterator[Violation]:
    dead = [delivery for delivery in life.deliveries if delivery.stage]
    if dead and life.produced and not _may_have_died(history, life, life.home, dead[0].granted_at_ms):
        yield _violation("dead without a reason", life, *life.deliveries, *life.claims)


def _may_have_died(history: History, life: Life, queue: str, until_ms: int) -> bool:
    """Whether the item may have run out of attempts or time in this queue, or was given up by a consumer."""
    facts = history.facts(queue)
    if any(each.claim.dead for each in life.retries("ok", "unknown") if each.operation.asked.queue == queue):
        return True
    if facts.expire_timeout_ms and life.produced:
        return until_ms >= life.produced.operation.asked.at_ms + facts.expire_timeout_ms - CLOCK_TOLERANCE_MS
    known = [each.item.attempts for each in life.deliveries if each.operation.asked.queue == queue]
    return 0 < facts.max_attempts <= max(known, default=0) + history.lost_reserves[queue]


# Leases.


def _double_lease(_: History, life: Life) -> Iterator[Violation]:
    """A second hand-out comes after the end of the first: its deadline, or a call that may have ended it."""
    for first, second in pairwise(life.deliveries):
        if first.rank == second.rank:
            yield _violation("handed out twice as one attempt", life, first, second)
        elif second.granted_at_ms < _deadline_ms(life, first) - CLOCK_TOLERANCE_MS:
            ends = [each for each in life.claims_on(first) if _may_have_ended(each)]
            if not any(each.operation.asked.at_ms <= second.operation.returned_at_ms for each in ends):
                yield _violation("leased twice at a time", life, first, second, *life.claims_on(first))


def _may_have_ended(claimed: Claimed) -> bool:
    return claimed.operation.asked.call in {"complete", "retry"} and claimed.operation.outcome != "failed"


def _deadline_ms(life: Life, delivery: Delivery) -> int:
    """Until when a lease holds for sure: a renew counts if it was answered, or if it may have shortened the lease."""
    deadline_ms = delivery.item.lease_deadline_ms
    for claimed in life.claims_on(delivery):
        operation = claimed.operation
        if operation.asked.call != "renew" or operation.outcome == "failed":
            continue
        if operation.end and operation.outcome == "ok":
            deadline_ms = operation.end.lease_deadline_ms
        elif operation.asked.lease_timeout_ms:
            deadline_ms = min(deadline_ms, operation.asked.at_ms + operation.asked.lease_timeout_ms)
    return deadline_ms


def _stale_claim(_: History, life: Life) -> Iterator[Violation]:
    """Who held an earlier lease can do nothing to the item once it was handed out again."""
    for claimed in life.claims:
        if claimed.operation.outcome != "ok":
            continue
        for delivery in life.deliveries:
            if delivery.rank > claimed.rank and delivery.operation.returned_at_ms < claimed.operation.asked.at_ms:
                yield _violation("an ended lease was honoured", life, delivery, claimed)
                break


# The end.


def _completed_twice(_: History, life: Life) -> Iterator[Violation]:
    completes = life.completes("ok")
    if len(completes) > 1:
        yield _violation("completed twice", life, *completes)
    for retry in life.retries("ok"):
        others = [each for each in (*completes, *life.retries("ok")) if each is not retry and each.rank == retry.rank]
        if others:
            yield _violation("one lease ended twice", life, retry, *others)
            break


def _came_back(_: History, life: Life) -> Iterator[Violation]:
    """The completed hand-out is the last, whatever the clocks say."""
    for complete in life.completes("ok"):
        for delivery in life.deliveries:
            if delivery.rank > complete.rank:
                yield _violation("completed and yet there", life, complete, delivery)


def _missing(history: History) -> Iterator[Violation]:
    """What was answered 200 was completed or has died; what is unknown happened as a whole or not at all."""
    refuted = _refuted_completes(history)
    appeared = {life.produced.operation.key for life in history.lives.values() if life.produced and life.deliveries}
    for life in history.lives.values():
        if life.produced is None or _may_be_gone(history, life, refuted):
            continue
        operation = life.produced.operation
        if operation.outcome == "ok":
            yield _violation("lost", life, *life.deliveries, *life.claims)
        elif operation.outcome == "unknown" and operation.key in appeared:
            yield _violation("lost, though others of its produce are there", life, *life.deliveries, *life.claims)


def _refuted_completes(history: History) -> set[tuple[str, int]]:
    """Unknown completes that cannot have landed for one of their items, and so have not for any."""
    return {
        claimed.operation.key
        for life in history.lives.values()
        for claimed in life.completes("unknown")
        if life.is_found_after(claimed)
    }


def _may_be_gone(history: History, life: Life, refuted: set[tuple[str, int]]) -> bool:
    if life.completes("ok"):
        return True
    if any(each.operation.key not in refuted for each in life.completes("unknown")):
        return True
    dead_queue = history.facts(life.home).dead_queue
    last_queue = dead_queue if any(each.stage for each in life.deliveries) else life.home
    if history.facts(last_queue).dead_queue:
        return False
    return _may_have_died(history, life, last_queue, history.ended_at_ms)


_RULES: tuple[Callable[[History, Life], Iterator[Violation]], ...] = (
    _from_nowhere,
    _wrong_queue,
    _too_early,
    _attempts,
    _dead_without_reason,
    _double_lease,
    _stale_claim,
    _completed_twice,
    _came_back,
)
