"""The two doors as a connection sees them: bytes in whatever pieces, slow and broken clients, and an orderly stop."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.calls import make_calls
from api.heads import Heads
from querator.limits import Limits
from tests.api.conftest import Api, running_api

TIMEOUT_S = 30


def post(path: str, body: bytes, *headers: str, version: str = "1.1", length: str | None = None) -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: x", *headers, f"Content-Length: {length or len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def produce(text: str = "x", *headers: str) -> bytes:
    return post("/v1/queue.produce", b'{"queue_name":"mail","items":[{"utf8":"%b"}]}' % text.encode(), *headers)


BROKEN = post("/v1/queue.complete", b'{"queue_name":"mail"}')
COLD = post("/v1/queues.list", b"{}")
CHUNKED = (
    b"POST /v1/queue.produce HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'15\r\n{"queue_name":"mail",\r\n16\r\n"items":[{"utf8":"c"}]\r\n1\r\n}\r\n0\r\n\r\n'
)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Raw:
    """A connection that sends and reads bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head in lower case, and body of the next answer."""
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            found = re.search(rb"content-length: (\d+)", head)
            assert found is not None
            body = await self.reader.readexactly(int(found[1]))
        return int(head.split()[1]), head, body

    async def ask(self, data: bytes) -> tuple[int, bytes, bytes]:
        self.writer.write(data)
        return await self.answer()

    async def closed(self) -> bytes:
        """Wait until the server closes; what it sent before."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


async def connect(api: Api) -> Raw:
    return Raw(*await asyncio.open_connection("127.0.0.1", api.port))


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
async def raw(api: Api) -> AsyncIterator[Raw]:
    connection = await connect(api)
    yield connection
    connection.writer.close()


def waiting_reserves(api: Api) -> int:
    return api.router._host.logical_queues("mail")[0].stats().reserve_waiting


RESERVE = post("/v1/queue.reserve", b'{"queue_name":"mail","batch_size":1,"client_id":"c","request_timeout":"10m"}')


async def test_both_doors_answer_alike(tmp_path: Path) -> None:
    """The same requests get the same codes, headers and bodies, whichever door they came through."""
    seen = []
    for fast_door in (True, False):
        folder = tmp_path / str(fast_door)
        folder.mkdir()
        async with running_api(folder, fast_door=fast_door) as api:
            await api.ok("queues.create", queue_name="mail")
            connection = await connect(api)
            answers = [await connection.ask(data) for data in (produce(), BROKEN, produce("y", "Accept: text/html"))]
            connection.writer.close()
            seen.append(
                [
                    (code, sorted(re.sub(rb"date: [^\r]+", b"", head).split(b"\r\n")), body)
                    for code, head, body in answers
                ]
            )
    assert seen[0] == seen[1]
    assert [code for code, _, _ in seen[0]] == [200, 400, 455]


MIXED = [produce("a"), BROKEN, produce("b"), CHUNKED, COLD, produce("d"), GET, produce("e")]
CODES = [200, 400, 200, 200, 200, 200, 200, 200]


@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_pipelined_requests_are_answered_in_order(api: Api, raw: Raw, step: int) -> None:
    """Many requests of every kind in one stream, in pieces of any size: one answer each, in order, all served."""
    stream = b"".join(MIXED)
    for start in range(0, len(stream), step):
        raw.writer.write(stream[start : start + step])
        if step < 100:
            await asyncio.sleep(0)
    assert [(await raw.answer())[0] for _ in MIXED] == CODES
    items = (await api.ok("storage/items.list", queue_name="mail"))["items"]
    assert [each["payload"] for each in items] == ["YQ==", "Yg==", "Yw==", "ZA==", "ZQ=="]


async def test_every_split_gives_the_same_answers(tmp_path: Path) -> None:
    """Two requests cut in two at every byte: both are answered as if they had come whole."""
    stream = produce("a") + BROKEN
    async with running_api(tmp_path) as api:
        await api.ok("queues.create", queue_name="mail")
        for cut in range(1, len(stream)):
            connection = await connect(api)
            connection.writer.write(stream[:cut])
            await connection.writer.drain()
            await asyncio.sleep(0)
            connection.writer.write(stream[cut:])
            assert [(await connection.answer())[0] for _ in range(2)] == [200, 400]
            connection.writer.close()


REQUESTS = st.lists(st.sampled_from(list(zip(MIXED, CODES, strict=True))), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS, cuts=st.lists(st.integers(0, 3000), max_size=6))
def test_random_streams_in_random_pieces(
    requests: list[tuple[bytes, int]], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any mix of requests in any pieces: one answer each, in order."""

    async def run() -> None:
        async with running_api(tmp_path_factory.mktemp("api")) as api:
            await api.ok("queues.create", queue_name="mail")
            connection = await connect(api)
            stream = b"".join(data for data, _ in requests)
            edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
            for start, stop in itertools.pairwise(edges):
                connection.writer.write(stream[start:stop])
                await asyncio.sleep(0)
            assert [(await connection.answer())[0] for _ in requests] == [code for _, code in requests]
            connection.writer.close()

    asyncio.run(run())


PLAIN_HEAD = post("/v1/queue.produce", b"", "Accept: */*", length="5")


@pytest.fixture(scope="module")
def heads() -> Heads:
    router: Any = None  # no call is made
    return Heads(make_calls(router=router, limits=Limits()))


@pytest.mark.parametrize(
    "head",
    [
        PLAIN_HEAD.replace(b"POST", b"PUT"),
        PLAIN_HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN_HEAD.replace(b"queue.produce", b"queues.list"),
        PLAIN_HEAD.replace(b"queue.produce", b"queue.produce?x=1"),
        PLAIN_HEAD.replace(b"queue.produce", b"queue%2eproduce"),
        PLAIN_HEAD.replace(b"/v1/", b"http://x/v1/"),
        PLAIN_HEAD.replace(b"Host: x\r\n", b""),
        PLAIN_HEAD.replace(b"Content-Length: 5\r\n", b""),
        *(
            PLAIN_HEAD.replace(b"Accept: */*", line)
            for line in (
                b"Content-Length: 5",
                b"Content-Length: 6",
                b"Transfer-Encoding: chunked",
                b"transfer-encoding: identity",
                b"Expect: 100-continue",
                b"Upgrade: h2c",
                b"Connection: upgrade",
                b"Connection: keep-alive, close",
                b"Content-Encoding: gzip",
                b"Querator-Route: redirect",
                b"Accept: text/html",
                b"Content-Type: text/plain",
                b"Host: y",
                b"Accept: */*\r\nAccept: */*",
                b"Accept: *\r\n /*",
                b"Accept : */*",
                b"Accept: */*\n",
                b"X\x00Y: 1",
                b"no colon",
            )
        ),
        *(
            PLAIN_HEAD.replace(b": 5", b": " + length)
            for length in (b"+5", b"-5", b"5 5", b"0x5", b"5,5", b"9" * 25, b"5000001")
        ),
    ],
)
def test_unusual_heads_are_left_to_aiohttp(heads: Heads, head: bytes) -> None:
    """The fast door takes plain POSTs to hot calls, and nothing else."""
    assert heads.read(PLAIN_HEAD) is not None
    assert head != PLAIN_HEAD
    assert heads.read(head) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"hello\r\n\r\n",
        b"POST /v1/queue.produce HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/queue.produce HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/queue.produce HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST /v1/queue.produce HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_400(raw: Raw, data: bytes) -> None:
    """The same envelope as for every other error, and then the connection is closed."""
    code, head, body = await raw.ask(data)
    assert (code, b"x-content-type-options: nosniff" in head) == (400, True)
    assert b'"message":"request is not HTTP; ' in body
    await raw.closed()


async def test_smuggled_request_is_not_served(api: Api, raw: Raw) -> None:
    """A length and a chunked body at once are refused or read as chunks: what hides behind is never a second request."""
    hidden = produce("hidden")
    raw.writer.write(
        b"POST /v1/queue.produce HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
    )
    code, _, _ = await raw.answer()
    assert code in {400, 455}
    raw.writer.write_eof()
    assert b"HTTP/1.1 200" not in await raw.closed()
    assert await api.ok("storage/items.list", queue_name="mail") == {}


async def test_expect_continue(api: Api, raw: Raw) -> None:
    """A client that asks first is told to go on; one that would send too much is told so before it sends."""
    body = b'{"queue_name":"mail","items":[{}]}'
    raw.writer.write(post("/v1/queue.produce", b"", "Expect: 100-continue", length=str(len(body))))
    assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    assert (await raw.ask(body))[0] == 200
    code, _, answer = await raw.ask(post("/v1/queue.produce", b"", "Expect: 100-continue", length="99999999"))
    assert (code, b"body is too large" in answer) == (455, True)


async def test_connection_close_is_honoured(raw: Raw) -> None:
    """Who asks for it gets one answer and an end."""
    raw.writer.write(produce("x", "Connection: close"))
    answered = await raw.closed()
    assert answered.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in answered


async def test_http_1_0(raw: Raw) -> None:
    """The old version is answered and closed."""
    raw.writer.write(post("/v1/queue.complete", b"{}", version="1.0"))
    assert b" 400 Bad Request\r\n" in await raw.closed()


async def test_caller_that_goes_frees_its_long_poll(api: Api) -> None:
    """A waiting reserve is gone from the queue as soon as its caller is, and no item is handed to nobody."""
    connection = await connect(api)
    connection.writer.write(RESERVE)
    await until(lambda: waiting_reserves(api) == 1)
    connection.writer.close()
    await until(lambda: waiting_reserves(api) == 0)
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    assert len((await api.ok("queue.reserve", queue_name="mail", batch_size=1, client_id="d"))["items"]) == 1


async def test_many_failing_requests_in_one_write(raw: Raw) -> None:
    """Thousands of pipelined requests that fail at once are each answered."""
    raw.writer.write(BROKEN * 3000)
    for _ in range(3000):
        assert (await raw.answer())[0] == 400


async def test_client_that_does_not_read_is_held_back(api: Api) -> None:
    """While nobody reads the answers no further request is served; once they are read all of them arrive."""
    for _ in range(10):
        await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x" * 500_000}] * 6)
    connection = await connect(api)
    connection.writer.write(RESERVE * 60)
    await until(lambda: any(getattr(each, "_blocked_since_s", 0) for each in api.server._hall.connections))
    stats = await api.ok("queue.stats", queue_name="mail")
    assert stats["logicalQueues"][0]["partitions"][0]["total_leased"] < 60
    for _ in range(60):
        assert (await connection.answer())[0] == 200
    connection.writer.close()


async def test_client_that_sends_ahead_is_held_back(api: Api, raw: Raw) -> None:
    """Megabytes of requests behind one that waits are not taken in, and are all answered in the end."""
    ahead = post("/v1/queue.complete", b'{"queue_name":"mail","ids":["%b"]}' % (b"y" * 60_000))
    sending = asyncio.ensure_future(_write_all(raw, RESERVE, ahead * 500))
    await until(lambda: waiting_reserves(api) == 1)
    assert not sending.done()
    await api.ok("queue.produce", queue_name="mail", items=[{"utf8": "x"}])
    assert [(await raw.answer())[0] for _ in range(501)] == [200] + [400] * 500
    await sending


async def _write_all(connection: Raw, *data: bytes) -> None:
    for each in data:
        connection.writer.write(each)
        await connection.writer.drain()


SLOW = Limits(header_timeout_ms=150, body_timeout_ms=150, idle_timeout_ms=150)


@pytest.mark.parametrize(
    "data",
    [
        b"POST /v1/queue.pro",
        b"GET /heal",
        produce()[:-3],
        COLD[:-1],
        CHUNKED[:-9],
    ],
)
async def test_slow_requests_are_cut_off(tmp_path: Path, fast_door: bool, data: bytes) -> None:
    """A head or a body that does not arrive in time is answered 454, and the connection is closed."""
    async with running_api(tmp_path, fast_door=fast_door, limits=SLOW) as api:
        connection = await connect(api)
        code, _, body = await connection.ask(data)
        assert (code, b"request timed out" in body) == (454, True)
        await connection.closed()


@pytest.mark.parametrize("first", [b"", BROKEN, COLD])
async def test_idle_connections_are_closed(tmp_path: Path, fast_door: bool, first: bytes) -> None:
    """Whoever says nothing for too long is let go without a word."""
    async with running_api(tmp_path, fast_door=fast_door, limits=SLOW) as api:
        connection = await connect(api)
        if first:
            await connection.ask(first)
        assert await connection.closed() == b""


async def test_long_polls_are_not_idle(tmp_path: Path, fast_door: bool) -> None:
    """A reserve may wait longer than any of the deadlines of a connection."""
    async with running_api(tmp_path, fast_door=fast_door, limits=SLOW) as api:
        await api.ok("queues.create", queue_name="mail")
        connection = await connect(api)
        body = b'{"queue_name":"mail","batch_size":1,"client_id":"c","request_timeout":"1s"}'
        code, _, answer = await connection.ask(post("/v1/queue.reserve", body))
        assert (code, b"request timed out" in answer) == (454, True)
        connection.writer.close()


async def test_too_many_connections(tmp_path: Path, fast_door: bool) -> None:
    """One more than allowed is told to try again; when another has gone there is room."""
    async with running_api(tmp_path, fast_door=fast_door, limits=Limits(connections=1)) as api:
        first = await connect(api)
        assert (await first.ask(GET))[0] == 200
        second = await connect(api)
        code, _, body = await second.answer()
        assert (code, b'"message":"overloaded; ' in body) == (454, True)
        first.writer.close()
        await until(lambda: not api.server._hall.connections)
        third = await connect(api)
        assert (await third.ask(GET))[0] == 200
        third.writer.close()


async def test_stop_answers_waiting_reserves(api: Api) -> None:
    """Who waits is told to go elsewhere, idle connections are closed, and nobody gets in any more."""
    waiting, idle = await connect(api), await connect(api)
    await idle.ask(GET)
    waiting.writer.write(RESERVE)
    await until(lambda: waiting_reserves(api) == 1)
    await api.server.stop()
    code, head, body = await waiting.answer()
    assert (code, b"connection: close" in head) == (454, True)
    assert b'"message":"instance is stopping; ' in body
    assert await idle.closed() == b""
    with pytest.raises(ConnectionRefusedError):
        await connect(api)
    await api.server.stop()


async def test_stop_lets_what_runs_finish(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A produce that is being written when the server stops is still answered, and answered with success."""
    hold: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(api.router, "complete", lambda *_arguments: hold)
    connection = await connect(api)
    connection.writer.write(post("/v1/queue.complete", b'{"queue_name":"mail","ids":["x"]}'))
    hall = api.server._hall
    await until(lambda: any(getattr(each, "_future", None) is hold for each in hall.connections))
    stopping = asyncio.ensure_future(api.server.stop())
    await until(lambda: hall.stopping)
    hold.set_result(None)
    assert (await connection.answer())[0] == 200
    await stopping
    await connection.closed()


async def test_stop_cuts_off_what_does_not_finish(
    tmp_path: Path, fast_door: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace a stuck request does not hold the server."""
    async with running_api(tmp_path, fast_door=fast_door, limits=Limits(stop_grace_ms=50)) as api:
        stuck: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(api.router, "complete", lambda *_arguments: stuck)
        connection = await connect(api)
        connection.writer.write(post("/v1/queue.complete", b'{"queue_name":"mail","ids":["x"]}'))
        hall = api.server._hall
        await until(lambda: any(getattr(each, "_future", None) is stuck for each in hall.connections))
        await api.server.stop()
        assert await connection.closed() == b""
        await until(stuck.cancelled)


async def test_stop_cuts_off_a_stuck_cold_call(
    tmp_path: Path, fast_door: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that never ends does not hold the server either, whether its caller waits or has gone."""
    async with running_api(tmp_path, fast_door=fast_door, limits=Limits(stop_grace_ms=50)) as api:
        cancelled = 0
        running = 0

        async def stuck(_queue_name: str) -> Any:
            nonlocal cancelled, running
            running += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1
                raise

        monkeypatch.setattr(api.router, "queue_stats", stuck)
        ask = post("/v1/queue.stats", b'{"queue_name":"mail"}')
        waits, gone = await connect(api), await connect(api)
        waits.writer.write(ask)
        gone.writer.write(ask)
        await until(lambda: running == 2)
        gone.writer.close()
        await until(lambda: len(api.server._hall.connections) == 1)
        await api.server.stop()
        assert cancelled == 2
        assert await waits.closed() == b""
