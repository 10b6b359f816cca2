"""Opens a backend by the name of its driver, as the configuration gives it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from querator.errors import InvalidRequest
from querator.waist import Backend
from storage.memory import MemoryBackend
from storage.sqlite import SqliteBackend
from storage.sqlite_file import SYNCHRONOUS

_OPTIONS: Mapping[str, frozenset[str]] = {
    "memory": frozenset(),
    "sqlite": frozenset({"path", "synchronous"}),
}


async def open_backend(
    *, name: str, driver: str, affinity: float, options: Mapping[str, object], data_dir: Path
) -> Backend:
    """Open the backend. Raises `InvalidRequest` if it is wrongly configured, `StorageError` if it cannot be opened."""
    known = _OPTIONS.get(driver)
    if known is None:
        raise InvalidRequest(
            "storage driver is unknown",
            f"backend '{name}' asks for '{driver}'; there are {', '.join(sorted(_OPTIONS))}",
        )
    for option in options:
        if option not in known:
            raise InvalidRequest(
                "storage option is unknown", f"backend '{name}' has '{option}', which {driver} does not know"
            )
    if driver == "memory":
        return MemoryBackend(name, affinity)
    return await SqliteBackend.open(
        name=name,
        path=data_dir / _text(name, options, "path"),
        affinity=affinity,
        synchronous=_synchronous(name, options),
    )


def _text(name: str, options: Mapping[str, object], option: str, default: str = "") -> str:
    value = options.get(option, default)
    if not isinstance(value, str) or not value:
        raise InvalidRequest("storage option is invalid", f"'{option}' of backend '{name}' must be a text")
    return value


def _synchronous(name: str, options: Mapping[str, object]) -> str:
    value = _text(name, options, "synchronous", SYNCHRONOUS[0]).lower()
    if value not in SYNCHRONOUS:
        raise InvalidRequest(
            "storage option is invalid", f"'synchronous' of backend '{name}' must be one of {', '.join(SYNCHRONOUS)}"
        )
    return value
