"""A channel: the messages that go to and come from one other instance, gathered into frames.

What is to be sent while a frame is on its way goes into the next one. So many calls share the cost of one, and there is
no timer that an idle call would wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import structlog

from cluster import messages
from cluster.messages import Ask, Cancel, Failed, Message, Told
from querator.clock import Clock
from querator.errors import NoSuchMethod, Overloaded, ProduceInDoubt, QueratorError, RetryRequest

_MAX_WAITING = 20_000  # messages that are not sent yet
_MAX_FRAME = 512  # messages; bounds how long one frame keeps both ends busy
_FULL_FRAME_BYTES = 4 << 20  # no more is added; a single message may be larger
_SLACK_MS = 2_000  # that an answer may be late, after the time that the call was given

_log = structlog.get_logger(__name__)


class LinkLost(Exception):
    """The connection to another instance has ended, or could not be made."""


class Link(Protocol):
    """A connection between two instances that carries frames both ways, in order. Made by a `Network`."""

    async def write(self, frame: bytes) -> None:
        """Returns when the next frame may be written. Raises `LinkLost`."""

    async def read(self) -> bytes:
        """The next frame. Raises `LinkLost`."""

    async def close(self) -> None: ...


class Answering(Protocol):
    """What answers the calls of other instances, and hears what they tell."""

    def ask(self, instance: str, call: str, arguments: tuple[Any, ...]) -> Awaitable[Any]: ...
    def hear(self, instance: str, message: Message) -> None: ...


class _Asked:
    __slots__ = ("call", "deadline_ms", "future", "sent")

    def __init__(self, call: str, future: asyncio.Future[Any], deadline_ms: int) -> None:
        self.call = call
        self.future = future
        self.deadline_ms = deadline_ms
        self.sent = False


class Channel:
    """One end of a link. `run` returns when the link is lost; until then both ends may ask."""

    def __init__(self, instance: str, answering: Answering, clock: Clock) -> None:
        self.instance = instance
        self._answering = answering
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._out: list[Message] = []
        self._wanted = asyncio.Event()
        self._asked: dict[int, _Asked] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}  # what this end was asked and has not answered
        self._number = 0

    # What this end says.

    def ask(self, call: str, arguments: tuple[Any, ...], timeout_ms: int) -> asyncio.Future[Any]:
        """The answer of the other end. Cancel it when nobody waits for it any more."""
        if len(self._out) >= _MAX_WAITING:
            raise Overloaded(f"too many requests wait for instance '{self.instance}'")
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asked[number] = _Asked(call, future, self._clock.now_ms() + timeout_ms + _SLACK_MS)
        future.add_done_callback(lambda done: self._forget(number, done))
        self.tell(Ask(number, call, msgspec.Raw(messages.encode(arguments))))
        return future

    def tell(self, message: Message) -> None:
        self._out.append(message)
        self._wanted.set()

    def _forget(self, number: int, future: asyncio.Future[Any]) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None and future.cancelled() and asked.sent:
            self.tell(Cancel(number))

    # The link.

    async def run(self, link: Link) -> None:
        """Carry messages until the link is lost. What was sent and not answered has failed then."""
        tasks = [asyncio.create_task(each) for each in (self._write(link), self._read(link))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    _log.error("channel failed", instance=self.instance, exc_info=ended)
            self.lose()
            await link.close()

    async def _write(self, link: Link) -> None:
        try:
            while True:
                await self._wanted.wait()
                if frame := self._next_frame():
                    await link.write(messages.encode(frame))
        except LinkLost:
            return

    def _next_frame(self) -> list[Message]:
        """What goes next. Calls that nobody waits for any more never go: their callers may have asked again."""
        frame: list[Message] = []
        size = taken = 0
        for message in self._out[:_MAX_FRAME]:
            taken += 1
            if isinstance(message, Ask):
                asked = self._asked.get(message.number)
                if asked is None:
                    continue
                asked.sent = True
            frame.append(message)
            size += _size(message)
            if size >= _FULL_FRAME_BYTES:
                break
        self._out = self._out[taken:]
        if not self._out:
            self._wanted.clear()
        return frame

    async def _read(self, link: Link) -> None:
        try:
            while True:
                frame = await link.read()
                for message in messages.decode_frame(frame):
                    self._hear(message)
        except LinkLost:
            return
        except msgspec.DecodeError as error:
            _log.error("frame cannot be read", instance=self.instance, error=str(error))

    def give_up_late(self) -> None:
        """Fail the calls that were not answered although their time is over, whatever the link does."""
        now_ms = self._clock.now_ms()
        late = [(number, asked) for number, asked in self._asked.items() if asked.deadline_ms <= now_ms]
        for number, asked in late:
            _fail(asked, self.instance)
            if asked.sent:
                self.tell(Cancel(number))  # what it would lease now, nobody would know of

    def lose_unsent(self) -> None:
        """There is no link, and what waits for one is told so."""
        for message in self._out:
            if isinstance(message, Ask) and (asked := self._asked.get(message.number)) is not None:
                _fail(asked, self.instance)
        self._out.clear()
        self._wanted.clear()

    def lose(self) -> None:
        """The link is lost, with everything that went over it."""
        self.lose_unsent()
        for asked in list(self._asked.values()):
            _fail(asked, self.instance)
        for answer in list(self._answers.values()):
            answer.cancel()
        self._answers.clear()

    # What the other end says.

    def _hear(self, message: Message) -> None:
        if isinstance(message, Ask):
            self._answer(message)
        elif isinstance(message, Told):
            asked = self._asked.get(message.number)
            if asked is not None and not asked.future.done():
                asked.future.set_result(messages.SHAPES[asked.call].decode_result(message.result))
        elif isinstance(message, Failed):
            asked = self._asked.get(message.number)
            if asked is not None and not asked.future.done():
                asked.future.set_exception(message.error())
        elif isinstance(message, Cancel):
            if (answer := self._answers.get(message.number)) is not None:
                answer.cancel()
        else:
            self._answering.hear(self.instance, message)

    def _answer(self, ask: Ask) -> None:
        try:
            if ask.call not in messages.SHAPES:
                raise NoSuchMethod(f"{ask.call}, which instance '{self.instance}' asks for")
            arguments = messages.SHAPES[ask.call].decode_arguments(ask.arguments)
            future = asyncio.ensure_future(self._answering.ask(self.instance, ask.call, arguments))
        except QueratorError as error:
            self.tell(messages.failed(ask.number, error))
            return
        self._answers[ask.number] = future
        future.add_done_callback(lambda done: self._answered(ask, done))

    def _answered(self, ask: Ask, future: asyncio.Future[Any]) -> None:
        self._answers.pop(ask.number, None)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.tell(Told(ask.number, msgspec.Raw(messages.encode(future.result()))))
            return
        if not isinstance(error, QueratorError):
            _log.error("call of an instance failed", instance=self.instance, call=ask.call, exc_info=error)
        self.tell(messages.failed(ask.number, error))


def _size(message: Message) -> int:
    """About; what has no body is small."""
    if isinstance(message, Ask):
        return len(memoryview(message.arguments))
    return len(memoryview(message.result)) if isinstance(message, Told) else 0


def _fail(asked: _Asked, instance: str) -> None:
    """It was not answered. Whether items that were sent are stored, nobody knows; the rest may be asked again."""
    if asked.future.done():
        return
    if asked.sent and asked.call in {"produce", "import_items"}:
        asked.future.set_exception(ProduceInDoubt())
    else:
        asked.future.set_exception(RetryRequest("instance does not answer", f"'{instance}' cannot be reached now"))


Connect = Callable[[str], Awaitable[Link]]  # to the peer address of an instance; raises `LinkLost`
