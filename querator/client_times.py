"""Durations and instants as people hand them to the client: anything that can mean only one thing."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from querator.durations import format_duration, parse_duration

DurationLike: TypeAlias = timedelta | float | str  # a number is seconds; a text is such as "1m30s"


def duration_ms(value: DurationLike, name: str = "duration") -> int:
    """In whole milliseconds; ``name`` is what the error calls it."""
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ValueError(f"{name} is invalid; {error}") from None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a timedelta, a number of seconds or a text such as '1m30s', not {value!r}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} is invalid; {value!r} is not a length of time")
    return round(seconds * 1000)


def duration_s(value: DurationLike, name: str = "duration") -> float:
    return duration_ms(value, name) / 1000


def duration_text(value: DurationLike | None, name: str) -> str:
    """As the wire writes it; the empty text, which is left out there, for None."""
    return "" if value is None else format_duration(duration_ms(value, name))


def instant(value: datetime, name: str) -> datetime:
    """In UTC. An instant without time zone could mean several, and is refused."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {value!r}")
    if value.tzinfo is None:
        raise ValueError(f"{name} is invalid; {value!r} has no time zone, use e.g. datetime.now(UTC)")
    return value.astimezone(UTC)
