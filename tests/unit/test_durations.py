"""Durations and instants as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querator.durations import (
    MAX_DURATION_MS,
    format_duration,
    format_instant,
    from_instant,
    parse_duration,
    parse_instant,
    to_instant,
)


@pytest.mark.parametrize(
    ("text", "duration_ms", "shortest"),
    [
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("500ms", 500, "500ms"),
        ("1500ms", 1500, "1.5s"),
        ("90s", 90_000, "1m30s"),
        ("1m30s", 90_000, "1m30s"),
        ("1m0s", 60_000, "1m"),
        ("24h", 86_400_000, "24h"),
        ("24h0m0s", 86_400_000, "24h"),
        ("1.5h", 5_400_000, "1h30m"),
        (".5s", 500, "500ms"),
        ("1h1ms", 3_600_001, "1h1ms"),
        ("2000us", 2, "2ms"),
        ("3000000ns", 3, "3ms"),
        ("10s", 10_000, "10s"),
        ("1m10s", 70_000, "1m10s"),
    ],
)
def test_durations_are_read_and_written(text: str, duration_ms: int, shortest: str) -> None:
    """Go's notation in, the shortest form of the same out."""
    assert parse_duration(text) == duration_ms
    assert format_duration(duration_ms) == shortest


@given(st.integers(0, MAX_DURATION_MS // 10_000))
def test_every_duration_comes_back(duration_ms: int) -> None:
    """What was written is read as the same number of milliseconds."""
    assert parse_duration(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-1s", "+1s", "1 s", "1d", "1s ", "1,5s", "١s", "1e3s", "1s1", "9" * 80 + "s", "9999999999h", "1ns"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed: units are needed, signs and spaces are not allowed, and there is a limit on both ends."""
    with pytest.raises(ValueError, match=r"duration|longer|shorter"):
        parse_duration(text)


def test_negative_durations_are_not_written() -> None:
    """There are none."""
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_every_instant_comes_back(instant_ms: int) -> None:
    """From the year 1 to the year 9999, to the millisecond."""
    assert parse_instant(format_instant(instant_ms)) == instant_ms
    assert from_instant(to_instant(instant_ms)) == instant_ms


def test_instants_of_other_zones() -> None:
    """The offset counts; parts of a millisecond are dropped."""
    assert parse_instant("2027-01-15T09:00:00.123999+01:00") == 1_800_000_000_123
    assert from_instant(datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=1)))) == 1_800_000_000_000
    assert format_instant(1_800_000_000_123) == "2027-01-15T08:00:00.123Z"
    assert to_instant(1_800_000_000_000) == datetime(2027, 1, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "now", "2027-01-15", "2027-01-15T08:00:00", "2027-13-01T00:00:00Z", "20270115T080000Z"]
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    """RFC 3339 with a zone, and nothing else."""
    with pytest.raises(ValueError, match="instant"):
        parse_instant(text)


def test_instants_have_a_zone() -> None:
    """A time without a zone is no instant."""
    with pytest.raises(ValueError, match="zone"):
        from_instant(datetime(2027, 1, 15))  # noqa: DTZ001 - that is the point
