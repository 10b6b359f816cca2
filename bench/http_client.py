"""The least HTTP/1.1 client that can load a server: one keep-alive connection, one request at a time, no futures.

An answer is given to a callback from within `data_received`, so that a client can send its next request in the same
pass of the loop. The generator shares its cores with the server it measures: each microsecond here is missing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES = 16_384
OnAnswer = Callable[[int, bytes], None]
OnLost = Callable[[Exception], None]


class BadAnswer(Exception):
    """The server's answer is not one that this client understands."""


class Answer(NamedTuple):
    status: int
    body: bytes


class AnswerParser:
    """Cuts a stream of bytes into answers. Knows Content-Length and nothing else, which is all that a server needs."""

    __slots__ = ("_chunks", "_head", "_length", "_missing", "_status")

    def __init__(self) -> None:
        self._head = b""  # the start of an answer whose head has not ended
        self._chunks: list[bytes] = []  # of a body that has not ended
        self._missing = 0  # bytes of that body
        self._length = 0
        self._status = 0

    def feed(self, data: bytes) -> Answer | None:
        """The answer that these bytes complete, if they do. Raises `BadAnswer`."""
        if self._missing:
            return self._feed_body(data)
        if self._head:
            data = self._head + data
        end = data.find(_HEAD_END)
        if end < 0:
            if len(data) > _MAX_HEAD_BYTES:
                raise BadAnswer("the head of the answer does not end")
            self._head = data
            return None
        self._head = b""
        self._status, self._length = _parse_head(data[:end])
        body = data[end + len(_HEAD_END) :]
        if len(body) == self._length:
            return Answer(self._status, body)
        self._missing = self._length
        return self._feed_body(body)

    def _feed_body(self, data: bytes) -> Answer | None:
        self._missing -= len(data)
        if self._missing < 0:
            raise BadAnswer(f"{-self._missing} bytes follow the answer that nobody asked for")
        self._chunks.append(data)
        if self._missing:
            return None
        body = b"".join(self._chunks)
        self._chunks.clear()
        return Answer(self._status, body)


def _parse_head(head: bytes) -> tuple[int, int]:
    """Status and length of the body."""
    if not head.startswith(b"HTTP/1.1 "):
        raise BadAnswer(f"not an HTTP/1.1 answer: {head[:40]!r}")
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    if at < 0:
        raise BadAnswer("the answer has no Content-Length")
    start = at + len(b"\r\ncontent-length:")
    end = lowered.find(b"\r\n", start)
    try:
        return int(head[9:12]), int(lowered[start : end if end >= 0 else len(lowered)])
    except ValueError:
        raise BadAnswer(f"the answer's status or Content-Length is no number: {head[:80]!r}") from None


class Connection(asyncio.Protocol):
    """One connection. `send` one request, wait for ``on_answer``, `send` the next."""

    def __init__(self, on_answer: OnAnswer, on_lost: OnLost) -> None:
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def send(self, request: bytes) -> None:
        if self._transport is None:
            raise ConnectionError("not connected")
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._parser.feed(data)
        except BadAnswer as error:
            self._fail(error)
            return
        if answer is not None:
            self._on_answer(answer.status, answer.body)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing:
            self._on_lost(exc or ConnectionResetError("the server closed the connection"))

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        self.close()
        self._on_lost(error)


async def connect(host: str, port: int, on_answer: OnAnswer, on_lost: OnLost) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(on_answer, on_lost), host, port)
    return connection


def encode_post(host: str, path: str, body: bytes) -> bytes:
    """A whole request. The body follows its head in one buffer, so that it leaves in one write."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body
