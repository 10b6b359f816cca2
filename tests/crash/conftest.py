"""A PostgreSQL that tests may stop and kill, as durable as in earnest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.postgres_server import INSTALL, Postgres, installed, private_postgres


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """One for all tests of this folder; each uses a schema of its own, and leaves it running."""
    if installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {INSTALL}")
    with private_postgres() as server:
        yield server
