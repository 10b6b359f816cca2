"""The other instances, as far as this one talks to them: one channel to each, made when it is first needed."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from cluster.channel import Answering, Channel, Connect, Link, LinkLost
from cluster.membership import Member
from cluster.messages import Message
from cluster.mirror import Mirror
from querator.clock import Clock, Timer, sleep_ms
from querator.errors import RetryRequest

_AGAIN_FIRST_MS = 50
_AGAIN_LAST_MS = 2_000
_LOOK_EVERY_MS = 250

_log = structlog.get_logger(__name__)


class Peers:
    """Addresses come from membership alone, never from a request."""

    def __init__(self, members: Mirror[Member], connect: Connect, clock: Clock) -> None:
        self._members = members
        self._connect = connect
        self._clock = clock
        self._answering: Answering
        self._channels: dict[str, Channel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._served: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()  # of channels that were let go of
        self._looking: Timer | None = None

    def answer_with(self, answering: Answering) -> None:
        """Who answers when other instances ask. To be said before anything else."""
        self._answering = answering

    def ask(self, instance: str, call: str, arguments: tuple[Any, ...], timeout_ms: int) -> asyncio.Future[Any]:
        return self._channel(instance).ask(call, arguments, timeout_ms)

    def tell(self, instance: str, message: Message) -> None:
        """Say something that needs no answer; it may be lost."""
        self._channel(instance).tell(message)

    def _channel(self, instance: str) -> Channel:
        channel = self._channels.get(instance)
        if channel is None:
            member = self._members.get(instance)
            if member is None or not member.peer_address:
                raise RetryRequest("instance does not answer", f"'{instance}' is not in the cluster now")
            channel = self._channels[instance] = Channel(instance, self._answering, self._clock)
            task = self._tasks[instance] = asyncio.create_task(self._keep(channel), name=f"peer {instance}")
            task.add_done_callback(lambda _: self._let_go(channel))
            self._look_for_late()
        return channel

    def _let_go(self, channel: Channel) -> None:
        """Fail what waits for it; the next call makes another one. Nothing happens the second time."""
        channel.lose()
        if self._channels.get(channel.instance) is channel:
            del self._channels[channel.instance]
            task = self._tasks.pop(channel.instance)
            if task.cancel():
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    def _look_for_late(self) -> None:
        """As long as there are channels: a call ends in time also if a link hangs while it is made or closed."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for channel in self._channels.values():
            channel.give_up_late()
        if self._channels:
            self._looking = self._clock.call_at(self._clock.now_ms() + _LOOK_EVERY_MS, self._look_for_late)

    async def _keep(self, channel: Channel) -> None:
        """Hold a link to one instance, for as long as it is in the cluster."""
        pause_ms = _AGAIN_FIRST_MS
        while (member := self._members.get(channel.instance)) is not None:
            try:
                link = await self._connect(member.peer_address)
            except LinkLost as error:
                _log.info("instance cannot be reached", instance=channel.instance, error=str(error))
                channel.lose_unsent()
                await sleep_ms(self._clock, pause_ms)
                pause_ms = min(_AGAIN_LAST_MS, 2 * pause_ms)
                continue
            pause_ms = _AGAIN_FIRST_MS
            await channel.run(link)

    async def serve(self, instance: str, link: Link) -> None:
        """Answer another instance over a link that it has made; returns when that is lost."""
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        try:
            await Channel(instance, self._answering, self._clock).run(link)
        finally:
            self._served.discard(task)

    def members_changed(self, instance: str) -> None:
        """An instance that has left the cluster, as far as is known, is not waited for."""
        if self._members.get(instance) is None and (channel := self._channels.get(instance)) is not None:
            self._let_go(channel)

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *self._ending, *self._served]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
