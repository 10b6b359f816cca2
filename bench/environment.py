"""Where a run took place: the machine, the versions, the disk. Without it a figure says nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import spread
from bench.proc import cpu_model, file_system

RESULTS = Path(__file__).parent / "results"
_FSYNCS = 200


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """A folder for the databases of a run, gone afterwards. Passable for the user that PostgreSQL runs as."""
    folder = Path(tempfile.mkdtemp(prefix="querator-bench-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def describe(folder: Path) -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": file_system(folder),
        "fsync_us": round(fsync_us(folder), 1),
        "commit": _commit(),
        "load_average": os.getloadavg()[0],
    }


def fsync_us(folder: Path) -> float:
    """What the disk takes to make 4 KB durable: the median, in microseconds."""
    took = []
    path = folder / "fsync-probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(_FSYNCS):
            file.write(b"\0" * 4096)
            began = time.monotonic()
            os.fdatasync(file.fileno())
            took.append((time.monotonic() - began) * 1e6)
    path.unlink()
    return spread(took).median


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
