"""What a request may ask for. Every refusal names the field that is wrong."""

from __future__ import annotations

from datetime import datetime

from querator.durations import format_duration, from_instant, parse_duration
from querator.errors import InvalidRequest
from querator.limits import Limits
from querator.names import MAX_NAME_BYTES

_MAX_INT32 = 2**31 - 1


def check_count(field: str, count: int, limits: Limits) -> None:
    """How many items one call may name."""
    if not 1 <= count <= limits.items_per_request:
        raise InvalidRequest(f"{field} is invalid", f"it must hold 1 to {limits.items_per_request}, and holds {count}")


def check_batch_size(batch_size: int, limits: Limits) -> int:
    if not 1 <= batch_size <= limits.items_per_request:
        raise InvalidRequest(
            "batch_size is invalid", f"it must be 1 to {limits.items_per_request}, and is {batch_size}"
        )
    return batch_size


def check_limit(limit: int, limits: Limits) -> int:
    """How much a list answers at most; 0 is as much as allowed."""
    if not 0 <= limit <= limits.items_per_request:
        raise InvalidRequest("limit is invalid", f"it must be 0 to {limits.items_per_request}, and is {limit}")
    return limit or limits.items_per_request


def check_client_id(client_id: str) -> str:
    if not client_id:
        raise InvalidRequest("client_id is invalid", "it must not be empty")
    if len(client_id) > MAX_NAME_BYTES:
        raise InvalidRequest("client_id is invalid", f"it must not be longer than {MAX_NAME_BYTES} characters")
    return client_id


def read_timeout(text: str, limits: Limits) -> int:
    """The ``request_timeout`` in ms."""
    if not text:
        return limits.default_timeout_ms
    timeout_ms = read_duration("request_timeout", text)
    if not limits.min_timeout_ms <= timeout_ms <= limits.max_timeout_ms:
        shortest, longest = format_duration(limits.min_timeout_ms), format_duration(limits.max_timeout_ms)
        raise InvalidRequest("request_timeout is invalid", f"it must be {shortest} to {longest}, and is {text}")
    return timeout_ms


def bound_timeout(text: str, time_left_ms: int, limits: Limits) -> str:
    """The ``request_timeout`` of a caller that waits no longer than that. One that is wrong stays so, to be refused."""
    try:
        timeout_ms = parse_duration(text) if text else limits.default_timeout_ms
    except ValueError:
        return text
    if not time_left_ms < timeout_ms <= limits.max_timeout_ms:
        return text
    return format_duration(max(time_left_ms, limits.min_timeout_ms))


def read_lease_timeout(text: str, limits: Limits) -> int:
    """The ``lease_timeout`` of one request in ms; 0 if it names none."""
    if not text:
        return 0
    timeout_ms = read_duration("lease_timeout", text)
    if timeout_ms < limits.min_timeout_ms:
        shortest = format_duration(limits.min_timeout_ms)
        raise InvalidRequest("lease_timeout is invalid", f"it must be at least {shortest}, and is {text}")
    return timeout_ms


def read_duration(field: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidRequest(f"{field} is invalid", str(error)) from None


def read_instant(instant: datetime) -> int:
    """Milliseconds since 1970, never 0, which means that there is none."""
    return max(1, from_instant(instant))


def fit_int32(count: int) -> int:
    """Public clients read counts of 32 bits."""
    return min(count, _MAX_INT32)
