"""A server that answers as a test tells it to, for what a real one cannot be made to do on purpose."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from querator import errors
from querator.transport import Backoff

Answerer: TypeAlias = Callable[[dict[str, Any]], Any]

QUICK = Backoff(base_s=0.001, max_s=0.005)
OK: dict[str, Any] = {"code": 200}


class Hang(Exception):
    """Raised by an answerer: never answer."""


class Break(Exception):
    """Raised by an answerer: carry the call out, and break the connection before its answer."""


class ServerDouble:
    """Answers each call by the answerer that was set for it, and keeps what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.headers: list[dict[str, str]] = []
        self.answer_headers: dict[str, str] = {}  # of every answer
        self.changed = asyncio.Condition()
        self._answerers: dict[str, Answerer] = {}

    def on(self, call: str, answerer: Answerer) -> None:
        """The answerer returns the answer, an awaitable of it, or raises an error of the tree."""
        self._answerers[call] = answerer

    def script(self, call: str, steps: Sequence[Exception | dict[str, Any]]) -> None:
        """Answer by one step after the other; the last one holds."""
        waiting = list(steps)

        def answer(_: dict[str, Any]) -> dict[str, Any]:
            step = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(step, Exception):
                raise step
            return step

        self.on(call, answer)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until calls have made the condition true."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(condition)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        call = request.match_info["call"]
        body = msgspec.json.decode(await request.read() or b"{}")
        self.headers.append(dict(request.headers))
        try:
            answer = self._answerers[call](body)
            if asyncio.iscoroutine(answer):
                answer = await answer
            status = 200
        except errors.QueratorError as error:
            status = error.code
            answer = {"code": status, "code_text": error.code_text, "message": error.message}
        except Hang:
            await self._note(call, body)
            await asyncio.Event().wait()
            raise
        except Break:
            await self._note(call, body)
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        await self._note(call, body)
        body = msgspec.json.encode(answer)
        return web.Response(status=status, body=body, content_type="application/json", headers=self.answer_headers)

    async def _note(self, call: str, body: dict[str, Any]) -> None:
        async with self.changed:
            self.asked[call].append(body)
            self.changed.notify_all()


@asynccontextmanager
async def serve_double() -> AsyncIterator[ServerDouble]:
    double = ServerDouble()
    app = web.Application()
    app.router.add_route("*", "/v1/{call:.*}", double.answer)
    app.router.add_route("GET", "/{call:health}", double.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    double.url = f"http://{host}:{port}"
    try:
        yield double
    finally:
        await runner.cleanup()


def produced(body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a produce that stored everything."""
    ids = [f"id-of-{item.get('utf8') or item.get('bytes')}" for item in body["items"]]
    return {"code": 200, "partition": 0, "ids": ids}
