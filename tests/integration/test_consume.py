"""The client's consumer against a real server: items come, are answered, and survive lost streams."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from querator import Client, Consumer, NoSuchQueue, NotLeased, TransportError
from querator.client_items import ReservedItem
from querator.transport import Backoff
from tests.api.conftest import Api, running_api
from tests.api.grpc_client import eventually

PATIENCE_S = 60


class Wire:
    """A connection to the server's gRPC port that can be cut and mended."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.opened = 0

    async def start(self) -> None:
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        """Every connection breaks, and none can be made until `start`."""
        assert self._server is not None
        self._server.close()
        self.break_off()

    def break_off(self) -> None:
        """Every connection breaks; new ones can be made."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        there_reader, there_writer = await asyncio.open_connection(*self._address)
        self._writers |= {writer, there_writer}
        await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))
        self._writers -= {writer, there_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def wire_to(api: Api) -> AsyncIterator[Wire]:
    assert api.server.grpc_address is not None
    wire = Wire(api.server.grpc_address)
    await wire.start()
    try:
        yield wire
    finally:
        await wire.cut()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(tmp_path, grpc=True) as running:
        await running.ok("queues.create", queue_name="mail", lease_timeout="1h")
        yield running


@pytest.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    backoff = Backoff(base_s=0.01, max_s=0.05)
    async with Client(api.url, timeout=PATIENCE_S, backoff=backoff) as opened:
        yield opened


def address(api: Api) -> list[str]:
    assert api.server.grpc_address is not None
    return ["{}:{}".format(*api.server.grpc_address)]


async def totals(client: Client) -> tuple[int, int]:
    """How many items there are, and how many of them are leased."""
    [partition] = (await client.stats("mail")).logical_queues[0].partitions
    return partition.total, partition.total_leased


async def take(stream: Consumer, count: int) -> list[ReservedItem]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(stream) for _ in range(count)]


async def test_items_come_and_are_completed(api: Api, client: Client) -> None:
    """Every item comes once, in order, with its attributes, and completing all of them leaves nothing."""
    await client.produce("mail", [str(number) for number in range(500)])
    seen = []
    async with client.consume("mail", max_in_flight=20, grpc=address(api)) as stream:
        async for item in stream:
            seen.append(item)
            await stream.complete(item)
            if len(seen) == 500:
                break
    assert [item.text for item in seen] == [str(number) for number in range(500)]
    assert {(item.queue_name, item.partition, item.attempts) for item in seen} == {("mail", 0, 1)}
    assert await totals(client) == (0, 0)


async def test_items_that_are_produced_later_come(api: Api, client: Client) -> None:
    """A consumer that waits gets what is produced meanwhile."""
    async with client.consume("mail", grpc=address(api)) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await client.produce("mail", {"to": "ann"})
        item = await waiting
        assert item.json() == {"to": "ann"}
        await stream.complete(item)


async def test_answers(api: Api, client: Client) -> None:
    """Retry gives back, renew extends, and an error is the one that the plain call raises."""
    await client.produce("mail", ["a", "b"])
    async with client.consume("mail", max_in_flight=2, grpc=address(api)) as stream:
        first, second = await take(stream, 2)
        deadline = first.lease_deadline
        assert await stream.renew([first, second], lease_timeout="10h") > deadline
        assert first.lease_deadline > deadline
        await stream.retry(first, delay="1h")
        await stream.complete(second)
        with pytest.raises(NotLeased, match=second.id):
            await stream.complete(second)
    [scheduled] = await client.list_scheduled("mail")
    assert scheduled.payload == b"a"


async def test_many_tasks_share_a_consumer(api: Api, client: Client) -> None:
    """Tasks that iterate over one consumer share its items, each item once."""
    await client.produce("mail", [str(number) for number in range(200)])
    seen: list[str] = []

    async def work(stream: Consumer) -> None:
        async for item in stream:
            seen.append(item.text)
            await stream.complete(item)

    async with client.consume("mail", max_in_flight=16, grpc=address(api)) as stream:
        tasks = [asyncio.ensure_future(work(stream)) for _ in range(8)]

        async def is_empty() -> bool:
            return await totals(client) == (0, 0)

        await eventually(is_empty)
    await asyncio.gather(*tasks)  # closing ends them
    assert sorted(seen, key=int) == [str(number) for number in range(200)]


async def test_closing_gives_back_what_was_not_taken(api: Api, client: Client) -> None:
    """Items that came and nobody took are ready at once; one that was taken stays leased, and can be completed."""
    await client.produce("mail", [str(number) for number in range(10)])
    async with client.consume("mail", max_in_flight=10, grpc=address(api)) as stream:
        [item] = await take(stream, 1)

        async def all_leased() -> bool:
            return await totals(client) == (10, 10)

        await eventually(all_leased)
    assert await totals(client) == (10, 1)
    await client.complete(item)
    assert len(await client.reserve("mail", 10)) == 9


async def test_a_lost_stream_is_opened_again(api: Api, client: Client) -> None:
    """Through many cuts of the connection every item is completed, and the bound holds for what was held before."""
    async with wire_to(api) as wire:
        await client.produce("mail", [str(number) for number in range(300)])
        done: set[str] = set()
        async with client.consume("mail", max_in_flight=10, grpc=[wire.address]) as stream:
            while len(done) < 300:
                items = await take(stream, min(10, 300 - len(done)))
                if len(done) % 50 == 0:
                    wire.break_off()
                for item in items:
                    await complete(stream, item)
                done |= {item.text for item in items}
                assert (await totals(client))[1] <= 10
        assert wire.opened > 6
    assert len(done) == 300
    assert await totals(client) == (0, 0)


async def complete(stream: Consumer, item: ReservedItem) -> None:
    """As a careful program does: an item whose completion got lost with the stream is found completed."""
    try:
        await stream.complete(item)
    except NotLeased as error:
        if not getattr(error, "__notes__", None):
            raise


async def test_calls_wait_for_the_next_stream(api: Api, client: Client) -> None:
    """A complete while the server cannot be reached is sent when it can, and raises nothing."""
    async with wire_to(api) as wire:
        await client.produce("mail", ["a"])
        async with client.consume("mail", grpc=[wire.address]) as stream:
            [item] = await take(stream, 1)
            await wire.cut()
            completing = asyncio.ensure_future(stream.complete(item))
            await wire.start()
            await completing
    assert await totals(client) == (0, 0)


async def test_the_next_address_is_tried(api: Api, client: Client) -> None:
    """An address where nobody answers is passed over."""
    await client.produce("mail", ["a"])
    async with wire_to(api) as wire:
        nobody = wire.address
    async with client.consume("mail", grpc=[nobody, *address(api)]) as stream:
        await stream.complete(await take(stream, 1))


async def test_what_cannot_be_opened_is_raised(api: Api) -> None:
    """A queue that does not exist, at once; a server that is not there, after the client's timeout."""
    async with Client(api.url, timeout=PATIENCE_S) as client:
        with pytest.raises(NoSuchQueue, match="nowhere"):
            async with client.consume("nowhere", grpc=address(api)):
                pass
    async with wire_to(api) as wire:
        nobody = wire.address
    async with Client(api.url, timeout="200ms") as client:
        with pytest.raises(TransportError, match="stream was lost"):
            async with client.consume("mail", grpc=[nobody]):
                pass


async def test_a_deleted_queue_is_raised_to_who_iterates(api: Api, client: Client) -> None:
    """What no waiting mends ends the iteration with its error."""
    async with client.consume("mail", grpc=address(api)) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await client.delete_queue("mail", force=True)
        with pytest.raises(NoSuchQueue):
            await waiting


# The whole program.


class Program:
    """`querator serve` as a process, with gRPC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"http://127.0.0.1:{_free_port()}"
        self.grpc = f"127.0.0.1:{_free_port()}"
        self.process: asyncio.subprocess.Process | None = None

    async def launch(self) -> asyncio.subprocess.Process:
        flags = ("--listen", self.url.removeprefix("http://"), "--grpc-listen", self.grpc)
        program = Path(sys.executable).parent / "querator"
        command = (program, "serve", *flags, "--data-dir", self._folder / "data", "--log-format", "json")
        self.process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        return self.process

    async def start(self) -> None:
        process = await self.launch()
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := await process.stderr.readline():
                if f'"grpc": "{self.grpc}"' in line.decode():
                    return
        raise AssertionError("the server ended")

    async def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    server = Program(tmp_path)
    yield server
    await server.kill()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def test_a_consumer_outlives_its_server(program: Program) -> None:
    """A server is killed and started again on its data: the same stream goes on, and items that were held can be completed."""
    await program.start()
    async with Client(program.url, timeout=PATIENCE_S) as client:
        await client.create_queue("mail", lease_timeout="1h")
        await client.produce("mail", [str(number) for number in range(20)])
        async with client.consume("mail", max_in_flight=5, grpc=[program.grpc]) as stream:
            held = await take(stream, 5)
            await program.kill()
            completing = asyncio.ensure_future(stream.complete(held))
            await program.start()
            await completing
            rest: list[ReservedItem] = []
            while len(rest) < 15:
                [item] = await take(stream, 1)
                await stream.complete(item)
                rest.append(item)
        assert sorted(int(item.text) for item in [*held, *rest]) == list(range(20))
        assert await totals(client) == (0, 0)


async def test_a_server_says_which_port_is_taken(program: Program) -> None:
    """`querator serve` ends with one line that names the option."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        program.grpc = f"127.0.0.1:{listener.getsockname()[1]}"
        process = await program.launch()
        async with asyncio.timeout(PATIENCE_S):
            _, told = await process.communicate()
    assert process.returncode == 1
    assert f"grpc_listen cannot be used; {program.grpc} is taken" in told.decode()
    assert "Traceback" not in told.decode()
