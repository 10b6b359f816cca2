"""Links between instances of one process, which a test can cut."""

from __future__ import annotations

import asyncio

from cluster.channel import LinkLost
from cluster.peers import Peers

_END = b"\xc0"


class MemoryLink:
    """One end. What is written here is read at the other end."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []  # that were written here, for tests to look at
        self.other: MemoryLink
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._lost = False

    async def write(self, frame: bytes) -> None:
        if self._lost:
            raise LinkLost("cut")
        self.frames.append(frame)
        self.other._inbox.put_nowait(frame)

    async def read(self) -> bytes:
        frame = await self._inbox.get() if not self._lost else _END
        if frame == _END:
            self._lost = True
            raise LinkLost("cut")
        return frame

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        for end in (self, self.other):
            end._lost = True
            end._inbox.put_nowait(_END)


class Wires:
    """Connects the peers that are plugged in, by their address."""

    def __init__(self) -> None:
        self.plugged: dict[str, Peers] = {}
        self.links: list[MemoryLink] = []
        self._addresses: dict[MemoryLink, str] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def connect(self, me: str, address: str) -> MemoryLink:
        peers = self.plugged.get(address)
        if peers is None:
            raise LinkLost(f"nobody is at '{address}'")
        near, far = MemoryLink(), MemoryLink()
        near.other, far.other = far, near
        self.links.append(near)
        self._addresses[near] = address
        task = asyncio.create_task(peers.serve(me, far))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return near

    def cut_all(self) -> None:
        for address in set(self._addresses.values()):
            self.cut(address)

    def cut(self, address: str) -> None:
        """Cut all links to an instance."""
        for link in [link for link in self.links if self._addresses[link] == address]:
            link.cut()
            self.links.remove(link)
            del self._addresses[link]
