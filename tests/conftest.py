"""Servers that tests of several folders share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from bench.postgres_server import INSTALL, NOT_DURABLE, Postgres, installed, private_postgres


def pytest_configure() -> None:
    """A shell lets its background jobs ignore Ctrl-C, and the programs that tests start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests that neither stop nor break it; each uses a schema of its own.

    The role ``guarded`` is the only one that has to give its password.
    """
    if installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {INSTALL}")
    with private_postgres(NOT_DURABLE, hba=["host all guarded 127.0.0.1/32 scram-sha-256"]) as server:
        yield server
