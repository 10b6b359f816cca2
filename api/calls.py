"""The calls: each a plain function from bytes to bytes, which knows no HTTP framework.

A door finds the `Call` by its path, gives it the body, waits for what it asks, and gets the bytes of the answer.
What a call does is in the modules by noun (`api.queue_calls`, `api.queues_calls`, `api.storage_calls`, `api.cluster_calls`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from api.cluster_calls import ClusterCalls
from api.codec import json_reader, protobuf_reader, write_protobuf
from api.forms import Form
from api.queue_calls import QueueCalls
from api.queues_calls import QueuesCalls
from api.storage_calls import StorageCalls
from cluster.router import Router
from querator import wire
from querator.errors import InternalError, NoSuchQueue, QueratorError, RequestFailed
from querator.limits import Limits
from querator.names import check_queue_name

ReloadConfig = Callable[[], Awaitable[Sequence[str]]]
Handle = Callable[[Any, bool], Awaitable[Any]]
Make = Callable[[Any, Any, bool], msgspec.Struct]
Elsewhere = Callable[[Any], str]

_OK = wire.Envelope(code=200)
_OK_JSON = wire.encode(_OK)
_OK_PROTOBUF = write_protobuf(_OK)

_log = structlog.get_logger("querator.api")


class Failure(NamedTuple):
    code: int
    body: bytes


class Redirected(Exception):
    """Another instance has to be asked, and the caller wants to go there itself."""

    code = 307
    code_text = "Temporary Redirect"

    def __init__(self, address: str) -> None:
        super().__init__(f"ask the owner; it is at {address}")
        self.address = address


class Call:
    """One call of the API. Hot calls ask by a future that may be cancelled when the caller has gone.

    They have ``elsewhere``: where clients reach the instance that has to be asked for a request; empty if that is here.
    """

    __slots__ = ("_elsewhere", "_handle", "_make", "_read_json", "_read_protobuf", "body_limit", "hot", "name")

    def __init__(
        self, name: str, handle: Handle, make: Make | None, *, body_limit: int, elsewhere: Elsewhere | None = None
    ) -> None:
        request = wire.SHAPES[name].request
        self.name = name
        self.body_limit = body_limit
        self.hot = elsewhere is not None
        self._elsewhere = elsewhere
        self._handle = handle
        self._make = make
        self._read_json = json_reader(request)
        self._read_protobuf = protobuf_reader(request)

    def follow(self, other: Call) -> None:
        """Do as ``other``, the same call under other limits. Whoever holds this one follows too."""
        assert other.name == self.name
        self.body_limit = other.body_limit
        self._elsewhere = other._elsewhere
        self._handle = other._handle
        self._make = other._make

    def ask(self, body: bytes, form: Form, redirect: bool = False) -> tuple[Any, Awaitable[Any]]:
        """Read the request and ask; gives the request and what answers it. Raises what can be known at once.

        With ``redirect``, what another instance has to be asked is `Redirected`.
        """
        request = self.read(body, form)
        if redirect and (address := self._find_elsewhere(request)):
            raise Redirected(address)
        return request, self.begin(request, form.extended)

    def _find_elsewhere(self, request: Any) -> str:
        if self._elsewhere is None:
            return ""
        try:
            return self._elsewhere(request)
        except QueratorError:
            return ""  # what is wrong is told when it is asked here

    def read(self, body: bytes, form: Form) -> Any:
        return self._read_protobuf(body) if form.request_protobuf else self._read_json(body)

    def begin(self, request: Any, extended: bool) -> Awaitable[Any]:
        """Ask, with a request that is read already."""
        try:
            return self._handle(request, extended)
        except NoSuchQueue:
            check_queue_name(request.queue_name)  # or else the name itself is what is wrong
            raise

    def answer(self, request: Any, result: Any, form: Form) -> bytes:
        if self._make is None:
            return _OK_PROTOBUF if form.answer_protobuf else _OK_JSON
        answer = self._make(request, result, form.extended)
        return write_protobuf(answer) if form.answer_protobuf else wire.encode(answer)

    def answer_value(self, request: Any, result: Any, extended: bool) -> msgspec.Struct:
        """The answer before it is written."""
        return _OK if self._make is None else self._make(request, result, extended)


def known_error(error: BaseException, call: str) -> QueratorError:
    """What a caller is told of an error. What nobody foresaw goes to the log, and its details only there."""
    if isinstance(error, QueratorError):
        return error
    _log.error("call failed", call=call, exc_info=error)
    return InternalError()


def failure(error: BaseException, form: Form, call: str) -> Failure:
    """The answer to an error, or to a caller that has to ask elsewhere."""
    error = error if isinstance(error, Redirected) else known_error(error, call)
    envelope = wire.Envelope(code=error.code, code_text=error.code_text, message=str(error))
    return Failure(error.code, write_protobuf(envelope) if form.answer_protobuf else wire.encode(envelope))


def make_calls(*, router: Router, limits: Limits, reload_config: ReloadConfig | None = None) -> Mapping[str, Call]:
    """Every call by each of its paths, with and without ``/v1``."""
    calls = [*_hot_calls(router, limits), *_cold_calls(router, limits, reload_config)]
    assert {call.name for call in calls} == set(wire.SHAPES)
    return {path: call for call in calls for path in (f"/v1/{call.name}", f"/{call.name}")}


def _hot_calls(router: Router, limits: Limits) -> list[Call]:
    queue = QueueCalls(router, limits)
    small, large = limits.body_bytes, limits.produce_body_bytes
    anywhere, at_owner = queue.elsewhere, queue.owner_elsewhere
    return [
        Call("queue.produce", queue.produce, queue.produced, body_limit=large, elsewhere=anywhere),
        Call("queue.reserve", queue.reserve, queue.reserved, body_limit=small, elsewhere=anywhere),
        Call("queue.lease", queue.reserve, queue.reserved, body_limit=small, elsewhere=anywhere),
        Call("queue.complete", queue.complete, None, body_limit=small, elsewhere=at_owner),
        Call("queue.retry", queue.retry, None, body_limit=small, elsewhere=at_owner),
        Call("queue.renew", queue.renew, queue.renewed, body_limit=small, elsewhere=at_owner),
    ]


def _cold_calls(router: Router, limits: Limits, reload_config: ReloadConfig | None) -> list[Call]:
    queue = QueueCalls(router, limits)
    queues = QueuesCalls(router, limits)
    storage = StorageCalls(router, limits)
    cluster = ClusterCalls(router, limits)

    async def reload(_request: wire.ConfigReloadRequest, _extended: bool) -> wire.ConfigReloadAnswer:
        if reload_config is None:
            raise RequestFailed("config cannot be reloaded", "this instance runs without a config")
        return wire.ConfigReloadAnswer(changes=list(await reload_config()))

    without_data: dict[str, Handle] = {
        "queue.clear": queue.clear,
        "queue.reload": queue.reload,
        "queue.pause": queue.pause,
        "queue.resume": queue.resume,
        "queues.create": queues.create,
        "queues.update": queues.update,
        "queues.delete": queues.delete,
        "storage/items.delete": storage.delete_items,
    }
    with_data: dict[str, Handle] = {
        "queue.stats": queue.stats,
        "queues.list": queues.list,
        "queues.info": queues.info,
        "storage/items.list": storage.list_items,
        "storage/scheduled.list": storage.list_scheduled,
        "storage/items.import": storage.import_items,
        "storage.list": storage.list_backends,
        "cluster.info": cluster.info,
        "cluster.route": cluster.route,
        "config.reload": reload,
    }
    body_limits = {"storage/items.import": limits.import_body_bytes}
    return [
        Call(name, _checked(handle), make, body_limit=body_limits.get(name, limits.body_bytes))
        for table, make in ((without_data, None), (with_data, _as_it_is))
        for name, handle in table.items()
    ]


def _checked(handle: Handle) -> Handle:
    """Ask only for a queue that can exist."""

    async def checked(request: Any, extended: bool) -> Any:
        if hasattr(request, "queue_name"):
            check_queue_name(request.queue_name)
        return await handle(request, extended)

    return checked


def _as_it_is(_request: Any, result: msgspec.Struct, _extended: bool) -> msgspec.Struct:
    return result
