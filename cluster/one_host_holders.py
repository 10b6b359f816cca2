"""Who holds leases on one host, and whether they live: each holder has the lock on a small file of its own.

The system takes the lock from a process that dies, however it dies. So whoever can take it knows that the holder is gone,
and need not wait for the end of its leases. A holder whose file is missing is gone as well.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class Holders:
    """Made at the opening of the coordination's file, in a folder beside it. To be used from one thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._token, self._lock = self._enter()
        for path in folder.iterdir():
            self.is_gone(path.name)

    def token(self) -> str:
        """The name under which this holder is alive."""
        if not _is_at(self._lock, self._folder / self._token):  # somebody has tidied up
            os.close(self._lock)
            self._folder.mkdir(exist_ok=True)
            self._token, self._lock = self._enter()
        return self._token

    def is_gone(self, token: str) -> bool:
        """Whether that holder has ended. Its file is removed then."""
        if token == self._token:
            return False
        path = self._folder / token
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def close(self) -> None:
        """From here on this holder is gone."""
        path = self._folder / self._token
        if _is_at(self._lock, path):
            path.unlink()
        os.close(self._lock)

    def _enter(self) -> tuple[str, int]:
        while True:
            token = secrets.token_hex(8)
            path = self._folder / token
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, path):
                return token, lock
            os.close(lock)  # it was looked at before it was locked, and taken for one that is gone


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
