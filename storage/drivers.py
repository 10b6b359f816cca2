"""Opens a backend by the name of its driver, as the configuration gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from querator.errors import InvalidRequest
from querator.waist import Backend
from storage.memory import MemoryBackend
from storage.postgres import PostgresBackend
from storage.postgres_options import PostgresOptions, find_option_mistakes
from storage.sqlite import SqliteBackend
from storage.sqlite_file import SYNCHRONOUS

_OPTIONS: Mapping[str, frozenset[str]] = {
    "memory": frozenset(),
    "postgres": frozenset(PostgresOptions.__struct_fields__),
    "sqlite": frozenset({"path", "synchronous"}),
}


class Mistake(NamedTuple):
    what: str  # "is unknown", "is missing", "is invalid"
    details: str


async def open_backend(
    *, name: str, driver: str, affinity: float, options: Mapping[str, object], data_dir: Path
) -> Backend:
    """Open the backend. Raises `InvalidRequest` if it is wrongly configured, `StorageError` if it cannot be opened."""
    for option, mistake in find_mistakes(driver, options):
        raise InvalidRequest(f"{option} of backend '{name}' {mistake.what}", mistake.details)
    if driver == "memory":
        return MemoryBackend(name, affinity)
    if driver == "postgres":
        return PostgresBackend(name=name, options=msgspec.convert(options, PostgresOptions), affinity=affinity)
    return await SqliteBackend.open(
        name=name,
        path=data_dir / str(options["path"]),
        affinity=affinity,
        synchronous=str(options.get("synchronous", SYNCHRONOUS[0])).lower(),
    )


def find_mistakes(driver: str, options: Mapping[str, object]) -> Iterator[tuple[str, Mistake]]:
    """What is wrong with a backend's configuration: the option, ``driver`` or ``options.…``, and what. Opens nothing."""
    known = _OPTIONS.get(driver)
    if known is None:
        yield "driver", Mistake("is unknown", f"'{driver}' is no driver; there are {', '.join(sorted(_OPTIONS))}")
        return
    for option in options:
        if option not in known:
            has = ", ".join(sorted(known)) or "none"
            yield f"options.{option}", Mistake("is unknown", f"the options of {driver} are: {has}")
    if driver == "sqlite":
        yield from _sqlite_mistakes(options)
    if driver == "postgres":
        for option, what, details in find_option_mistakes(options):
            yield f"options.{option}", Mistake(what, details)


def _sqlite_mistakes(options: Mapping[str, object]) -> Iterator[tuple[str, Mistake]]:
    path = options.get("path")
    if path is None:
        yield "options.path", Mistake("is missing", "sqlite needs the name of a file")
    elif not isinstance(path, str) or not path:
        yield "options.path", Mistake("is invalid", "it must be a text that is not empty")
    synchronous = options.get("synchronous", SYNCHRONOUS[0])
    if not isinstance(synchronous, str) or synchronous.lower() not in SYNCHRONOUS:
        yield "options.synchronous", Mistake("is invalid", f"it must be one of {', '.join(SYNCHRONOUS)}")
