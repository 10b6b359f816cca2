"""The leader: finds out what the assignment should be, and brings the cluster there, a few moves at a time.

It writes nothing but assignments, each by compare-and-set. Two that both think they lead do no harm: one of them writes
first, and the other looks again. While there is no leader, everybody goes on with what is assigned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from cluster.assignment import Assignment, Candidates, Load, assign, move_one
from cluster.catalog import Catalog
from cluster.coordinator import CoordinationError
from cluster.election import Election
from cluster.loads import Demand
from cluster.membership import Member, Membership
from querator.clock import Clock, sleep_ms
from querator.queues import Queue

_MOVES_AT_ONCE = 8  # of logical queues that could stay where they are
_BETWEEN_LOOKS_MS = 2_000
_BETWEEN_MOVES_MS = 200
_AGAIN_MS = 200  # after something went wrong

_log = structlog.get_logger(__name__)


class Leader:
    """`run` as long as the instance lives. `look` makes it look at once, if it leads."""

    def __init__(
        self, *, catalog: Catalog, membership: Membership, election: Election, demand: Demand, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._membership = membership
        self._election = election
        self._demand = demand
        self._clock = clock
        self._news = asyncio.Event()
        self._changed: set[str] = set()
        self._all_changed = True

    def look(self, queue_name: str | None = None) -> None:
        """Something has changed that the assignment of a queue depends on, or of all."""
        if queue_name is None:
            self._all_changed = True
        else:
            self._changed.add(queue_name)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._election.elected.wait()
            await self._membership.registered.wait()  # who is not seen itself does not see the others either
            self._news.clear()
            try:
                more = await self.evaluate()
            except CoordinationError as error:
                _log.warning("assignment could not be written", error=str(error))
                await self._again()
                continue
            except Exception:  # noqa: BLE001 - a defect; whoever leads and does nothing would stop the cluster
                _log.exception("assignment could not be made")
                await self._again()
                continue
            await self._pause(_BETWEEN_MOVES_MS if more else _BETWEEN_LOOKS_MS)

    async def _again(self) -> None:
        self._all_changed = True
        await sleep_ms(self._clock, _AGAIN_MS)

    async def _pause(self, time_ms: int) -> None:
        """Until there is news, or so much time has passed."""
        timer = self._clock.call_at(self._clock.now_ms() + time_ms, self.look)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    async def evaluate(self) -> bool:
        """Write what has to change now; whether more should be moved soon."""
        members = dict(self._membership.members.items())
        all_changed, self._all_changed = self._all_changed, False
        changed, self._changed = self._changed, set()
        load = Load(self._catalog.assignment(queue.name) for queue in self._catalog.all())
        for queue in self._catalog.all():
            if all_changed or queue.name in changed:
                await self._evaluate_queue(queue, members, load)
        return all_changed and await self._even_out(members)

    async def _evaluate_queue(self, queue: Queue, members: Mapping[str, Member], load: Load) -> None:
        present = self._catalog.assignment(queue.name)
        candidates = _candidates(queue, present, members)
        wanted = queue.settings.logical_queues
        if not wanted:
            able = {instance for each in candidates.values() for instance in each}
            wanted = min(max(1, len(able)), self._demand.of(queue.name, self._clock.now_ms()))
        load.take(present)
        assignment = assign(present, candidates, wanted, load)
        if assignment != present:
            await self._write(queue, assignment)

    async def _even_out(self, members: Mapping[str, Member]) -> bool:
        load = Load(self._catalog.assignment(queue.name) for queue in self._catalog.all())
        moves = 0
        for queue in self._catalog.all():
            present = self._catalog.assignment(queue.name)
            moved = move_one(present, _candidates(queue, present, members), load)
            if moved != present:
                await self._write(queue, moved)
                moves += 1
                if moves == _MOVES_AT_ONCE:
                    break
        return moves > 0

    async def _write(self, queue: Queue, assignment: Assignment) -> None:
        if await self._catalog.assign(queue.name, assignment, self._election.proof()):
            owners = {place.number: place.instance for place in assignment.logical_queues}
            _log.info("queue assigned", queue=queue.name, epoch=assignment.epoch, owners=owners)


def _candidates(queue: Queue, present: Assignment, members: Mapping[str, Member]) -> Candidates:
    """The instances that may own each partition: those that reach it and are not about to stop."""
    found: dict[int, frozenset[str]] = {}
    for place in queue.partitions:
        able = [member for member in members.values() if member.reaches(place.backend)]
        staying = frozenset(member.id for member in able if not member.draining)
        owner = present.owner_of(place.number)
        if owner is not None and owner.instance in staying and members[owner.instance].keeps(place.backend):
            staying = frozenset({owner.instance})
        found[place.number] = staying
    return found
