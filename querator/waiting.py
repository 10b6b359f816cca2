"""What waits for a partition: produces and reserves that may go to any, the oldest first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator

from querator.distribution import emptiest_first, share
from querator.errors import Overloaded, QueratorError
from querator.limits import Limits
from querator.member import Member
from querator.requests import Produce, Request, Reserve


class Waiting:
    def __init__(self, limits: Limits) -> None:
        self.produces: deque[Produce] = deque()
        self.reserves: OrderedDict[Reserve, None] = OrderedDict()
        self.limits = limits

    def __iter__(self) -> Iterator[Request]:
        yield from self.produces
        yield from self.reserves

    def check_room_for_produce(self, queue_name: str) -> None:
        if len(self.produces) >= self.limits.waiting_requests and not self.drop_answered():
            raise Overloaded(f"too many produce requests wait for '{queue_name}'")

    def check_room_for_reserve(self, queue_name: str) -> None:
        if len(self.reserves) >= self.limits.waiting_reserves:
            raise Overloaded(f"too many reserve requests wait for '{queue_name}'")

    def add_reserve(self, reserve: Reserve) -> None:
        """It leaves as soon as it is answered, or its caller goes."""
        self.reserves[reserve] = None
        reserve.future.add_done_callback(lambda _: self.reserves.pop(reserve, None))

    def put_back(self, requests: Iterable[Request]) -> None:
        """Produces and reserves that found no partition go to the head again, in their order."""
        for request in reversed([request for request in requests if not request.future.done()]):
            if isinstance(request, Reserve):
                self.reserves[request] = None
                self.reserves.move_to_end(request, last=False)
            elif isinstance(request, Produce):
                self.produces.appendleft(request)

    def take_over(self, requests: Iterable[Request]) -> None:
        """Let reserves try elsewhere while nobody knows whether their leases are stored, which then are nobody's."""
        left = [request for request in requests if isinstance(request, Reserve) and not request.future.done()]
        for reserve in reversed(left):
            other = reserve.move_out()
            self.add_reserve(other)
            self.reserves.move_to_end(other, last=False)

    def send_away(self, elsewhere: Callable[[Reserve], bool] | None, error: QueratorError) -> None:
        """Reserves do not wait here any longer: each goes on elsewhere, or is told why not."""
        reserves, self.reserves = list(self.reserves), OrderedDict()
        for reserve in reserves:
            if not reserve.future.done() and not (elsewhere is not None and elsewhere(reserve)):
                reserve.future.set_exception(error)

    def drop_answered(self) -> bool:
        """Free the places of produces that nobody waits for any more. Whether there was one."""
        before = len(self.produces)
        self.produces = deque(produce for produce in self.produces if not produce.future.done())
        return len(self.produces) < before

    def distribute(self, free: list[Member], *, reserving: bool) -> None:
        """Give what waits to partitions that are free."""
        if not self.produces and not self.reserves:
            return
        rooms = [member.room() for member in free]
        emptiest = emptiest_first(rooms, self.limits.batch_items, self.limits.batch_bytes)
        while self.produces and (index := next(emptiest, None)) is not None:
            produce = self.produces.popleft()
            if produce.future.done():
                continue
            member, room, count = free[index], rooms[index], len(produce.items)
            member.produces.append(produce)
            room.items += count + len(produce.scheduled)
            room.size += produce.size
            room.load += count
            if member.state.complete:
                room.available += count
        if reserving:
            for index, count in share(self._wanted(), len(self.reserves), rooms):
                reserve, _ = self.reserves.popitem(last=False)
                free[index].reserves.append((reserve, count))

    def _wanted(self) -> Iterator[int]:
        """What the first of the waiting reserves asks for; the caller takes it out before it asks again."""
        while self.reserves:
            first = next(iter(self.reserves))
            if first.future.done():
                del self.reserves[first]
            else:
                yield first.batch_size
