"""How a client's call travels: addresses, retries, time limits, and what an answer that is an error becomes.

Knows nothing of what the calls mean; that is `querator.client`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final, Protocol, TypeAlias

import aiohttp
import msgspec
from yarl import URL

from querator import errors, wire
from querator.version import VERSION

_log = logging.getLogger("querator.client")

Address: TypeAlias = URL  # of a server; the calls' paths are appended to it

_HEADERS: Final = {
    "Content-Type": "application/json",
    "Querator-Extended": "1",
    "User-Agent": f"querator-python/{VERSION}",
}

_OWNER: Final = "Querator-Owner"
_NO_HEADERS: Final[Mapping[str, str]] = {}

# What a server accepts as `request_timeout`; a call that may take longer is sent again.
_MIN_MS: Final = 10
_MAX_MS: Final = 900_000

# Connections are let go well before the server closes them for being idle (120 s), so that no request is sent into a
# connection that is being closed.
_KEEP_ALIVE_S: Final = 60.0

# A server that failed so is not asked by the next calls either.
_LEAVE: Final = (errors.TransportError, errors.InternalError, errors.Stopping)
# After these a call goes to another server at once; after others that it may be repeated after, only with a delay.
_GO_ON_AT_ONCE: Final = (*_LEAVE, errors.Moved)

_BY_CODE: Final[dict[int, type[errors.QueratorError]]] = {
    cls.code: cls
    for cls in (
        errors.InvalidRequest,
        errors.Unauthorized,
        errors.Forbidden,
        errors.NotFound,
        errors.Conflict,
        errors.TooManyRequests,
        errors.RequestFailed,
        errors.RetryRequest,
        errors.ContentError,
        errors.InternalError,
        errors.NoSuchMethod,
        errors.TransportError,
    )
}

# The errors whose code says less than the constant part of their message.
_BY_CONSTANT: Final[dict[tuple[int, str], type[errors.QueratorError]]] = {
    (400, "queue does not exist"): errors.NoSuchQueue,
    (400, "item is not leased"): errors.NotLeased,
    (454, "overloaded"): errors.Overloaded,
    (454, "request timed out"): errors.TimedOut,
    (454, "instance is stopping"): errors.Stopping,
    (454, "partition is failing"): errors.PartitionFailing,
    (454, "partition has moved"): errors.Moved,
}


def error_of(code: int, message: str) -> errors.QueratorError:
    """The error of the tree that an answer with this code and message stands for."""
    constant, _, details = message.partition("; ")
    kind = _BY_CONSTANT.get((code, constant)) or _BY_CODE.get(code)
    if kind is None:
        kind = errors.InternalError if code >= 500 else errors.RequestFailed
        details = f"HTTP status {code}" + (f"; {details}" if details else "")
    error = kind.__new__(kind)
    # The subclasses build their message from other arguments; here it is known already.
    errors.QueratorError.__init__(error, constant or kind.code_text, details)
    return error


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before the next attempt: base × factor^n, at most max, spread over its upper half."""

    base_s: float = 0.05
    factor: float = 2.0
    max_s: float = 2.0

    def delay_s(self, attempt: int, random: Random) -> float:
        full = min(self.max_s, self.base_s * self.factor ** min(attempt, 30))
        return full * random.uniform(0.5, 1.0)


class Way(Protocol):
    """Where a call had best go first, and what came of it. After that it goes to any server that is known."""

    def first(self) -> Address | None: ...

    def hint(self) -> None:
        """The answer said that another server owns what was asked."""

    def failed(self, address: Address, error: errors.QueratorError) -> None:
        """The attempt at the first address ended with an error."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call, however often it has to be sent."""

    path: str
    encode: Callable[[int], bytes]  # from the time in ms that the server is given to the body
    timeout_s: float  # for all attempts together
    repeatable: bool  # whether sending it again after a lost answer does no harm
    headers: dict[str, str] = {}  # beside those that every call has
    way: Way | None = None


class _Unanswered(Exception):
    """No answer came. ``sent`` tells whether the server may have seen the request."""

    def __init__(self, details: str, sent: bool) -> None:
        super().__init__(details)
        self.sent = sent


def parse_address(address: str) -> URL:
    """``host:port`` or a URL; the calls' paths are appended to it."""
    text = address if "://" in address else f"http://{address}"
    try:
        url = URL(text)
    except ValueError as error:
        raise ValueError(f"'{address}' is not an address of a server: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"'{address}' is not an address of a server: expected http://HOST:PORT")
    return url


class Transport:
    """Sends calls to the first address that answers, and stays with it until it fails."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        connections: int,
        connect_timeout_s: float,
        slack_s: float,
        backoff: Backoff,
        random: Random,
    ) -> None:
        if not addresses:
            raise ValueError("a client needs the address of at least one server")
        self._given = [parse_address(address) for address in addresses]
        self._known = self._given  # and those that were learned
        self._urls: dict[tuple[Address, str], URL] = {}
        self._current = self._given[0]
        self._connections = connections
        self._connect_timeout_s = connect_timeout_s
        self._slack_s = slack_s
        self._backoff = backoff
        self._random = random
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def learn(self, addresses: Sequence[str]) -> None:
        """Further addresses of the same cluster, in place of those that were learned before."""
        learned = [parse_address(address) for address in addresses]
        known = list(dict.fromkeys([*self._given, *learned]))
        if known != self._known:
            self._known = known
            self._urls.clear()
            if self._current not in known:
                self._current = known[0]

    async def call(self, call: Call) -> bytes:
        """The body of a successful answer, or the error of the last attempt within the call's time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.timeout_s
        direct = call.way.first() if call.way is not None else None
        address = self._current if direct is None else direct
        tried: set[Address] = set()  # in this round
        rounds = 0
        outcome_unknown = False
        while True:
            remaining_s = max(deadline - loop.time(), _MIN_MS / 1000)
            try:
                return await self._attempt(address, call, remaining_s)
            except errors.QueratorError as error:
                failure = error
                if call.way is not None and address is direct:
                    call.way.failed(address, error)
                if outcome_unknown and not error.retryable:
                    error.add_note("an earlier attempt of this call lost its answer, and may have been carried out")
                if not _may_repeat(call, error):
                    raise
                outcome_unknown = outcome_unknown or _is_outcome_unknown(error)
            self._leave(address, failure)
            tried.add(address)
            following = self._find_next(address, tried)
            delay_s = 0.0
            if following is None or not isinstance(failure, _GO_ON_AT_ONCE):
                delay_s = self._backoff.delay_s(rounds, self._random)
                rounds += 1
            if following is None:
                tried.clear()
            address = following or self._current
            if loop.time() + delay_s >= deadline:
                raise failure
            _log.debug("call failed, trying again: %s: %s", call.path, failure)
            await asyncio.sleep(delay_s)

    async def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """A plain GET, tried at each address once: the first answer's status and body."""
        failure = ""
        place = self._known.index(self._current)
        for address in (*self._known[place:], *self._known[:place]):
            try:
                status, body, _ = await self._send(address, "GET", path, None, timeout_s)
            except _Unanswered as error:
                failure = str(error)
            else:
                self._current = address
                return status, body
        raise errors.TransportError("server did not answer", failure)

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _attempt(self, address: Address, call: Call, remaining_s: float) -> bytes:
        body = call.encode(max(_MIN_MS, min(_MAX_MS, int(remaining_s * 1000))))
        try:
            status, answer, is_elsewhere = await self._send(
                address, "POST", call.path, body, remaining_s + self._slack_s, call.headers
            )
        except _Unanswered as error:
            raise _lost(error) from error.__cause__
        if is_elsewhere and call.way is not None:
            call.way.hint()
        if status == 200:
            return answer
        raise error_of(*_read_envelope(status, answer))

    async def _send(
        self,
        address: Address,
        method: str,
        path: str,
        body: bytes | None,
        timeout_s: float,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> tuple[int, bytes, bool]:
        """Status and body of the answer, and whether another server has to do with it."""
        url = self._urls.get((address, path))
        if url is None:
            url = self._urls[address, path] = address / path
        sent = {**_HEADERS, **headers} if headers else _HEADERS
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_timeout_s)
        try:
            async with self._open_session().request(method, url, data=body, headers=sent, timeout=timeout) as response:
                is_elsewhere = _OWNER in response.headers or bool(response.history)
                return response.status, await response.read(), is_elsewhere
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Unanswered(f"cannot connect to {address}: {_reason(error)}", sent=False) from error
        except TimeoutError as error:
            raise _Unanswered(f"{address} did not answer within {timeout_s:.1f} s", sent=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Unanswered(f"{address} broke off: {_reason(error)}", sent=True) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEP_ALIVE_S)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    def _leave(self, address: Address, failure: errors.QueratorError) -> None:
        """Turn to the next address, unless another call has done so already."""
        if self._current == address and isinstance(failure, _LEAVE):
            place = self._known.index(address)
            self._current = self._known[(place + 1) % len(self._known)]

    def _find_next(self, address: Address, tried: Collection[Address]) -> Address | None:
        """Where a call that failed goes then; None if it was everywhere."""
        if self._current not in tried:
            return self._current
        known = self._known
        place = known.index(address) if address in known else 0
        return next((each for each in (*known[place:], *known[:place]) if each not in tried), None)


def _lost(error: _Unanswered) -> errors.TransportError:
    if error.sent:
        return errors.TransportError("answer was lost", f"{error}; the call may have been carried out")
    return errors.TransportError("server is unreachable", str(error))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _is_outcome_unknown(error: errors.QueratorError) -> bool:
    if isinstance(error, errors.TransportError):
        return error.constant == "answer was lost"
    return error.code >= 500


def _may_repeat(call: Call, error: errors.QueratorError) -> bool:
    return error.retryable and (call.repeatable or not _is_outcome_unknown(error))


def _read_envelope(status: int, body: bytes) -> tuple[int, str]:
    try:
        envelope = msgspec.json.decode(body, type=wire.Envelope)
    except msgspec.MsgspecError:
        # Not ours: a proxy's page, or no Querator at all.
        return status, "; ".join(("unexpected answer", body[:200].decode("utf-8", "replace").strip()))
    return envelope.code or status, envelope.message
