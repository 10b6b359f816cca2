"""The items that a worker has in its hands, and what is to become of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from querator.client import Client
from querator.client_items import ReservedItem, RetryItem
from querator.client_times import DurationLike
from querator.errors import NotLeased, QueratorError

log = logging.getLogger("querator.worker")

_MAX_PER_CALL = 1000


class Reject(Exception):
    """Raised by a handler: the item can never succeed, and goes to the dead queue."""


class RetryLater(Exception):
    """Raised by a handler: give the item back after a delay, or at an instant, in place of the queue's policy."""

    def __init__(self, delay: DurationLike | None = None, *, at: datetime | None = None) -> None:
        if (delay is None) == (at is None):
            raise ValueError("RetryLater takes either a delay or an instant `at`")
        super().__init__(delay if at is None else at)
        self.delay = delay
        self.at = at


@dataclass(slots=True, eq=False)
class Held:
    """One reserved item. The times are those of the event loop."""

    item: ReservedItem
    _: KW_ONLY
    renewed_at: float  # when its lease was last known to begin
    task: asyncio.Task[None] | None = None  # of its handler, once that was started
    is_lost: bool = False  # another consumer may have it: it must not be settled
    is_let_go: bool = False  # its handler was cancelled because the worker stops
    reserved: Any = None  # the span of the call that reserved it, if there is one


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Back:
    """The item is to be given back."""

    delay: DurationLike | None = None  # with `at` also None: as the queue's retry policy says
    _: KW_ONLY
    at: datetime | None = None
    dead: bool = False

    def retry_item(self, item_id: str) -> RetryItem:
        return RetryItem(item_id, delay=self.delay, at=self.at, dead=self.dead)


AT_ONCE = Back(0)


def named_in(error: QueratorError, items: Iterable[ReservedItem]) -> set[str]:
    """Which of the items an error speaks of."""
    return {item.id for item in items if f"'{item.id}'" in error.message}


class Settler:
    """Tells the server what became of items: what gathers while one call is under way goes out with the next."""

    def __init__(
        self,
        client: Client,
        start: Callable[[Coroutine[Any, Any, None]], object],
        on_settled: Callable[[], None],
    ) -> None:
        self._client = client
        self._start = start  # of a task that the caller owns
        self._on_settled = on_settled
        self._waiting: list[tuple[ReservedItem, Done | Back]] = []
        self._is_settling = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    def settle(self, item: ReservedItem, verdict: Done | Back) -> None:
        self._waiting.append((item, verdict))
        if not self._is_settling:
            self._is_settling = True
            self._idle.clear()
            self._start(self._run())

    async def drain(self) -> None:
        """Return when nothing waits to be settled."""
        await self._idle.wait()

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                places = {item.partition for item, _ in waiting}
                await asyncio.gather(
                    *(self._settle([one for one in waiting if one[0].partition == place]) for place in places)
                )
                self._on_settled()
        finally:
            self._is_settling = False
            self._idle.set()

    async def _settle(self, settled: list[tuple[ReservedItem, Done | Back]]) -> None:
        """What became of the items of one partition."""
        done = [item for item, verdict in settled if isinstance(verdict, Done)]
        back = {item.id: (item, verdict) for item, verdict in settled if isinstance(verdict, Back)}
        for start in range(0, len(done), _MAX_PER_CALL):
            await self._send("complete", done[start : start + _MAX_PER_CALL], self._client.complete)

        async def give_back(items: list[ReservedItem]) -> None:
            retries = [back[item.id][1].retry_item(item.id) for item in items]
            await self._client.retry(items[0].queue_name, items[0].partition, retries)

        given = [item for item, _ in back.values()]
        for start in range(0, len(given), _MAX_PER_CALL):
            await self._send("retry", given[start : start + _MAX_PER_CALL], give_back)

    async def _send(
        self, verb: str, items: list[ReservedItem], call: Callable[[list[ReservedItem]], Coroutine[Any, Any, None]]
    ) -> None:
        """A call is all or nothing: if some of its items are no longer leased, it is repeated without them."""
        while items:
            try:
                await call(items)
            except NotLeased as error:
                lost = named_in(error, items)
                if not lost and len(items) > 1:
                    await asyncio.gather(*(self._send(verb, [item], call) for item in items))
                    return
                for item_id in lost or {items[0].id}:
                    log.warning("cannot %s %s of '%s': %s", verb, item_id, items[0].queue_name, _with_notes(error))
                items = [item for item in items if item.id not in lost] if lost else []
            except QueratorError as error:
                log.error(  # noqa: TRY400  the cause is another machine's: our stack tells nothing
                    "cannot %s %d items of '%s', they come back when their lease ends: %s",
                    verb,
                    len(items),
                    items[0].queue_name,
                    error,
                )
                return
            else:
                return


def _with_notes(error: QueratorError) -> str:
    return "; ".join((error.message, *getattr(error, "__notes__", ())))
