"""What the kernel says of processes: CPU time by thread, memory, and the file system under a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
# Fields of /proc/PID/stat, counted after the command's closing parenthesis (the command may hold spaces).
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _ENDED_USER_TICKS, _ENDED_SYSTEM_TICKS = 1, 11, 12, 13, 14


class CpuTime(NamedTuple):
    """Seconds on a CPU since the processes started."""

    main: float  # of the main threads: in our server, the event loop
    other: float  # of all other threads: in our server, those that write to the database

    @property
    def total(self) -> float:
        return self.main + self.other

    def since(self, earlier: CpuTime) -> CpuTime:
        return CpuTime(self.main - earlier.main, self.other - earlier.other)


class Memory(NamedTuple):
    resident_bytes: int
    peak_bytes: int


def _stat_fields(path: Path) -> list[str]:
    return path.read_text().rpartition(")")[2].split()


def _seconds(fields: list[str], *names: int) -> float:
    return sum(int(fields[name]) for name in names) / _TICKS_PER_SECOND


def cpu_time(root: int) -> CpuTime:
    """Of a process and its descendants. What ended descendants used is kept by the kernel with their parents."""
    main = other = 0.0
    for pid in process_tree(root):
        try:
            fields = _stat_fields(_PROC / str(pid) / "stat")
            main_fields = _stat_fields(_PROC / str(pid) / "task" / str(pid) / "stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        whole = _seconds(fields, _USER_TICKS, _SYSTEM_TICKS, _ENDED_USER_TICKS, _ENDED_SYSTEM_TICKS)
        of_main = _seconds(main_fields, _USER_TICKS, _SYSTEM_TICKS)
        main += of_main
        other += whole - of_main
    return CpuTime(main, other)


def process_tree(root: int) -> tuple[int, ...]:
    """The process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int(_stat_fields(entry / "stat")[_PARENT])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return tuple(tree)


def memory(pid: int) -> Memory:
    sizes = {}
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "VmHWM"}:
            sizes[name] = int(value.split()[0]) * 1024
    return Memory(sizes["VmRSS"], sizes["VmHWM"])


def file_system(path: Path) -> str:
    """The type of the file system that holds the path, such as ``ext4`` or ``tmpfs``."""
    target = path.resolve()
    best, kind = Path("/"), "unknown"
    for line in (_PROC / "self" / "mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        mounted = Path(mount.replace("\\040", " "))
        if target.is_relative_to(mounted) and len(mounted.parts) >= len(best.parts):
            best, kind = mounted, found
    return kind


def cpu_model() -> str:
    for line in (_PROC / "cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown"
