"""Durations and instants as text: ``1m30s`` and RFC 3339 on the wire, integer milliseconds everywhere else.

Whoever calls knows the name of the field: a `ValueError` from here says only what is wrong with the value.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated

import msgspec

_UNIT_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_TEXT = 64
MAX_DURATION_MS = 2**63 // 1_000_000  # what fits in 64 bits of nanoseconds, as public clients hold durations

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_INSTANT = Annotated[datetime, msgspec.Meta(tz=True)]


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> int:
    """``90s``, ``1m30s``, ``24h``, ``500ms``, ``1.5h`` or ``0``, in milliseconds."""
    if text == "0":
        return 0
    if not text:
        raise ValueError("a duration must not be empty")
    if len(text) > _MAX_TEXT:
        raise ValueError(f"a duration must not be longer than {_MAX_TEXT} characters")
    position, total_ms = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"{text!r} is not a duration such as '500ms', '90s', '1m30s' or '24h'")
        total_ms += float(part[1]) * _UNIT_MS[part[2]]
        position = part.end()
    if total_ms > MAX_DURATION_MS:
        raise ValueError(f"{text!r} is longer than {format_duration(MAX_DURATION_MS)}")
    if 0 < total_ms < 1:
        raise ValueError(f"{text!r} is shorter than a millisecond")
    return round(total_ms)


def format_duration(duration_ms: int) -> str:
    """The shortest of such texts that means the same: `parse_duration` gives the number back."""
    if duration_ms < 0:
        raise ValueError(f"{duration_ms} ms is not a duration: it is negative")
    if duration_ms == 0:
        return "0s"
    minutes, rest_ms = divmod(duration_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    if not rest_ms:
        return text
    if rest_ms < 1000:
        return f"{text}{rest_ms}ms"
    seconds, milliseconds = divmod(rest_ms, 1000)
    return f"{text}{seconds}.{milliseconds:03d}".rstrip("0") + "s" if milliseconds else f"{text}{seconds}s"


def to_instant(instant_ms: int) -> datetime:
    """Milliseconds since 1970 as an instant in UTC."""
    return _EPOCH + timedelta(milliseconds=instant_ms)


def from_instant(instant: datetime) -> int:
    """An instant with a time zone in milliseconds since 1970, rounded down."""
    if instant.tzinfo is None:
        raise ValueError("an instant must have a time zone")
    return (instant - _EPOCH) // _MILLISECOND


def parse_instant(text: str) -> int:
    """RFC 3339 with any offset, in milliseconds since 1970, rounded down."""
    try:
        return from_instant(msgspec.convert(text, _INSTANT))
    except msgspec.ValidationError:
        raise ValueError(f"{text[:_MAX_TEXT]!r} is not an instant such as '2030-01-31T08:00:00Z'") from None


def format_instant(instant_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return to_instant(instant_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
