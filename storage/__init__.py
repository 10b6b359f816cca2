"""Where partitions live: each backend implements the protocols of `querator.waist`."""

from __future__ import annotations

from storage.drivers import open_backend
from storage.faulty import FaultyBackend
from storage.memory import MemoryBackend
from storage.postgres import PostgresBackend
from storage.sqlite import SqliteBackend

__all__ = ["FaultyBackend", "MemoryBackend", "PostgresBackend", "SqliteBackend", "open_backend"]
