"""The heads that the fast door takes: plain POSTs to hot calls. Whatever is unusual about one makes it None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import httptools

from api.calls import Call
from api.forms import Form, choose_form
from querator.errors import ContentError

MAX_HEAD_BYTES = 8190  # as aiohttp bounds a line; a longer head goes to aiohttp, which says what is wrong with it
_MAX_KEPT = 1024
_MAX_KEPT_BYTES = 2048
_MAX_LENGTH_DIGITS = 18

# The one header that differs from request to request. Nothing but its plain form is taken out of a head.
_TRACEPARENT = re.compile(rb"\r\n(?i:traceparent): ?([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?=\r\n)")

# What changes how the body is framed, or asks for more than an answer.
_UNUSUAL = frozenset(
    {b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer", b"querator-route"}
)
_ONCE = frozenset({b"content-length", b"content-type", b"accept", b"querator-extended", b"connection", b"host"})


class Head(NamedTuple):
    call: Call
    path: str
    form: Form
    length: int  # of the body
    keep_alive: bool
    traceparent: str = ""


class _Reader:
    """Collects what httptools finds."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


class Heads:
    """Reads heads, and keeps what it read: a connection sends the same bytes again and again, its trace aside."""

    def __init__(self, calls: Mapping[str, Call]) -> None:
        self._hot = {path.encode(): call for path, call in calls.items() if call.hot}
        self._kept: dict[bytes, Head] = {}

    def forget(self) -> None:
        """What may be large has changed."""
        self._kept.clear()

    def read(self, head: bytes) -> Head | None:
        """``head`` ends with the empty line. A pure function of these bytes."""
        found = self._kept.get(head)
        if found is not None:
            return found
        trace = _TRACEPARENT.search(head)
        if trace is not None:
            found = self._read(head[: trace.start()] + head[trace.end() :])
            return None if found is None else found._replace(traceparent=trace[1].decode("ascii"))
        return self._read(head)

    def _read(self, head: bytes) -> Head | None:
        found = self._kept.get(head) or self._parse(head)
        if found is not None and len(head) <= _MAX_KEPT_BYTES:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[head] = found
        return found

    def _parse(self, head: bytes) -> Head | None:
        if _has_odd_lines(head):
            return None
        reader = _Reader()
        parser = httptools.HttpRequestParser(reader)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        if not reader.complete or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        call = self._hot.get(reader.url)
        fields = _read_fields(reader.headers)
        return None if call is None or fields is None else _make_head(call, reader.url.decode("ascii"), fields)


def _has_odd_lines(head: bytes) -> bool:
    """Folded lines, and ends of lines that are not CR LF."""
    lines = head.split(b"\r\n")
    return any(line[:1] in {b" ", b"\t"} or b"\r" in line or b"\n" in line or b"\0" in line for line in lines)


def _read_fields(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _UNUSUAL or (name in _ONCE and name in fields):
            return None
        fields[name] = value
    return fields


def _make_head(call: Call, path: str, fields: Mapping[bytes, bytes]) -> Head | None:
    length = fields.get(b"content-length", b"")
    connection = fields.get(b"connection", b"keep-alive").strip().lower()
    if not (length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS) or b"host" not in fields:
        return None
    if connection not in {b"keep-alive", b"close"} or int(length) > call.body_limit:
        return None
    try:
        values = (fields.get(name, b"").decode("ascii") for name in (b"content-type", b"accept", b"querator-extended"))
        form = choose_form(*values)
    except (ContentError, UnicodeDecodeError):
        return None
    return Head(call=call, path=path, form=form, length=int(length), keep_alive=connection == b"keep-alive")
