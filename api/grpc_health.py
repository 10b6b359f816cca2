"""The standard health service of gRPC: SERVING unless the report of `/health` says that the instance fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from api.health import FAIL

Report = Callable[[], Awaitable[Mapping[str, Any]]]

HEALTH: str = health.SERVICE_NAME

_WATCH_S = 1.0  # between two looks for one that watches

_Answer = health_pb2.HealthCheckResponse


def health_handler(report: Report, services: Collection[str], stopping: asyncio.Event) -> Any:
    """Knows these services, which are well or not together; ``stopping`` ends those that watch."""

    async def status() -> int:
        fails = (await report())["status"] == FAIL
        return int(_Answer.NOT_SERVING if fails else _Answer.SERVING)

    async def check(request: Any, context: Any) -> Any:
        if request.service not in services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no such service; {request.service}")
        return _Answer(status=await status())

    async def watch(request: Any, _context: Any) -> AsyncIterator[Any]:
        told = -1
        while True:
            ending = stopping.is_set()
            now = await status() if request.service in services else int(_Answer.SERVICE_UNKNOWN)
            if now != told:
                told = now
                yield _Answer(status=now)
            if ending:
                return
            try:
                async with asyncio.timeout(_WATCH_S):
                    await stopping.wait()
            except TimeoutError:
                continue

    read, write = health_pb2.HealthCheckRequest.FromString, _Answer.SerializeToString
    return grpc.method_handlers_generic_handler(
        HEALTH,
        {
            "Check": grpc.unary_unary_rpc_method_handler(check, read, write),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, read, write),
        },
    )
