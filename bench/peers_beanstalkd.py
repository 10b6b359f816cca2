"""beanstalkd with its binlog and an fsync per write, as a peer: its server process, and a client that pipelines."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import time
from pathlib import Path

from bench.load import split_address
from bench.measure import Counts, Load, Window
from bench.ports import free_port, wait_for_port

INSTALL = "apt-get install beanstalkd"
_TIME_TO_RUN_S = 600


def installed() -> str | None:
    """The path of the program, if it is there."""
    return shutil.which("beanstalkd", path="/usr/bin:/usr/sbin:/usr/local/bin")


class Beanstalkd:
    """A private beanstalkd in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        program = installed()
        if program is None:
            raise FileNotFoundError(f"beanstalkd is not installed; {INSTALL}")
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        self._folder.mkdir()
        port = free_port()
        # -f 0: fsync at every write, which is what "durable when answered" means here.
        command = [self._program, "-l", "127.0.0.1", "-p", str(port), "-b", str(self._folder), "-f", "0", "-z", "65535"]
        self._process = subprocess.Popen(command)
        wait_for_port("127.0.0.1", port, self._process)
        self.address = f"127.0.0.1:{port}"

    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class _Connection:
    """One client. The commands of a batch go out in one write; their answers are read as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def use(self, tube: str) -> None:
        self._writer.write(f"use {tube}\r\nwatch {tube}\r\nignore default\r\n".encode())
        await self._expect(b"USING")
        await self._expect(b"WATCHING")
        await self._expect(b"WATCHING")

    async def put(self, batch: bytes, count: int) -> None:
        self._writer.write(batch)
        for _ in range(count):
            await self._expect(b"INSERTED")

    async def reserve(self, count: int) -> list[bytes]:
        self._writer.write(b"reserve\r\n" * count)
        ids = []
        for _ in range(count):
            _, item_id, size = (await self._expect(b"RESERVED")).split()
            await self._reader.readexactly(int(size) + 2)
            ids.append(item_id)
        return ids

    async def delete(self, ids: list[bytes], counts: Counts) -> None:
        """Counts each item as it goes: a whole batch takes a good part of a round."""
        self._writer.write(b"".join([b"delete %b\r\n" % item_id for item_id in ids]))
        for _ in ids:
            await self._expect(b"DELETED")
            counts.completed += 1

    async def ready(self, tube: str) -> int:
        """How many items are in the tube, whatever their state."""
        self._writer.write(f"stats-tube {tube}\r\n".encode())
        size = int((await self._expect(b"OK")).split()[1])
        text = (await self._reader.readexactly(size + 2)).decode("ascii")
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line.startswith("current-jobs-"))
        names = ("ready", "reserved", "delayed", "buried")
        return sum(int(fields[f"current-jobs-{name}"]) for name in names)

    def close(self) -> None:
        self._writer.close()

    async def _expect(self, word: bytes) -> bytes:
        line = await self._reader.readline()
        if not line.startswith(word):
            raise RuntimeError(f"beanstalkd answered {line!r} where {word!r} was expected")
        return line


class BeanstalkdCycle:
    """The driver: full cycles, all clients on one tube."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._connections: list[_Connection] = []
        source = random.Random(load.first_client)
        head = f"put 0 0 {_TIME_TO_RUN_S} {load.payload_bytes}\r\n".encode()
        payloads = [source.randbytes(load.payload_bytes) for _ in range(load.batch)]
        self._put = b"".join([head + payload + b"\r\n" for payload in payloads])

    async def connect(self) -> None:
        for _ in range(self._load.clients):
            reader, writer = await asyncio.open_connection(*split_address(self._load.address), limit=1 << 20)
            connection = _Connection(reader, writer)
            await connection.use(self._load.queue_name)
            self._connections.append(connection)

    async def run(self, window: Window, counts: Counts) -> None:
        await asyncio.sleep(max(0.0, window.start - time.monotonic()))
        await asyncio.gather(*[self._loop(connection, window, counts) for connection in self._connections])
        if left := await self._connections[0].ready(self._load.queue_name):
            raise RuntimeError(f"{left} items are left in beanstalkd")

    async def _loop(self, connection: _Connection, window: Window, counts: Counts) -> None:
        batch = self._load.batch
        latencies = {call: counts.latency(call) for call in ("produce", "reserve", "complete")}
        while (began := time.monotonic()) < window.measure_until:
            await connection.put(self._put, batch)
            counts.produced += batch
            produced = time.monotonic()
            ids = await connection.reserve(batch)
            reserved = time.monotonic()
            await connection.delete(ids, counts)
            latencies["produce"].append(produced - began)
            latencies["reserve"].append(reserved - produced)
            latencies["complete"].append(time.monotonic() - reserved)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
