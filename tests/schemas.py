"""Names of schemas for tests that share a PostgreSQL server."""

from __future__ import annotations

import itertools

_NUMBERS = itertools.count(1)


def new_schema() -> str:
    """A name that no other test of this run uses."""
    return f"test_{next(_NUMBERS)}"
