"""Which names a queue may have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querator.errors import InvalidRequest
from querator.names import MAX_NAME_BYTES, check_queue_name


@pytest.mark.parametrize(
    "name", ["a", "mail", "orders.eu-1", "ünïcode", "列", "../../etc/passwd", "'; DROP", "x" * 512]
)
def test_ordinary_and_hostile_but_printable_names_are_allowed(name: str) -> None:
    """A name is only a name: it never reaches a path or a statement, so it may look like one."""
    if " " in name:
        with pytest.raises(InvalidRequest):
            check_queue_name(name)
    else:
        assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a\tb", "a\n", "a~b", "\x00", "a\x7f", "a\u00a0b", "a\u2028", "\u200b", "\ud800", "é" * 257],
)
def test_what_is_not_allowed_is_refused_with_the_field(name: str) -> None:
    """Empty, too long, blanks of any kind, control characters, halves of characters and the tilde."""
    with pytest.raises(InvalidRequest, match=r"^dead_queue is invalid; "):
        check_queue_name(name, "dead_queue")


@settings(deadline=None)
@given(st.text(max_size=600))
def test_a_name_is_accepted_or_refused_and_nothing_else(name: str) -> None:
    """No text makes the check fail otherwise, and what it accepts fits."""
    try:
        check_queue_name(name)
    except InvalidRequest:
        return
    assert 1 <= len(name.encode()) <= MAX_NAME_BYTES
    assert not any(character.isspace() for character in name)
