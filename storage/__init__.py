"""Where partitions live: each module implements the protocols of `querator.waist`."""

from __future__ import annotations

from storage.drivers import open_backend
from storage.memory import MemoryBackend
from storage.sqlite import SqliteBackend

__all__ = ["MemoryBackend", "SqliteBackend", "open_backend"]
