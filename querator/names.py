"""The one place that says which names are allowed."""

from __future__ import annotations

from querator.errors import InvalidRequest

MAX_NAME_BYTES = 512


def check_queue_name(name: str, field: str = "queue_name") -> str:
    """A queue's name is 1 to 512 bytes of UTF-8 without whitespace, control characters or ``~``."""
    if not name:
        raise InvalidRequest(f"{field} is invalid", "it must not be empty")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidRequest(f"{field} is invalid", f"it must not be longer than {MAX_NAME_BYTES} bytes")
    for character in name:
        if character == "~" or character.isspace() or not character.isprintable():
            raise InvalidRequest(f"{field} is invalid", f"it must not contain {character!r}")
    return name
