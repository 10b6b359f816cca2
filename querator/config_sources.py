"""Where the configuration comes from: a file, the environment over it, flags over both.

Every value knows its source, so that a mistake is told with the line, the variable or the flag that made it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import msgspec

from querator.config import MAX_WORKERS, Config, Path, Problem, embedded, find_problems, option_name
from querator.config_file import ConfigFile
from querator.config_types import convert, from_text, scalar_options
from querator.errors import InvalidRequest

# What only the whole program can say of a configuration: drivers, and rules of queues.
Check = Callable[[Config], Iterable[Problem]]

_TOLD = 5  # mistakes in one message


def variable_name(path: Path) -> str:
    """``QUERATOR_LOG_LEVEL`` for ``log.level``."""
    return "_".join(("QUERATOR", *map(str, path))).upper()


VARIABLES: Mapping[str, tuple[Path, Any]] = {variable_name(path): (path, kind) for path, kind in scalar_options()}


class Mistake(NamedTuple):
    place: str  # "querator.yaml line 3", "QUERATOR_LISTEN", "--listen"
    what: str  # "listen is invalid"
    details: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.details}"


class Reading:
    """One reading of all sources. ``config`` has defaults in place of what ``mistakes`` tells."""

    def __init__(self, file: ConfigFile | None, overrides: Mapping[str, Any], check: Check | None) -> None:
        self._file = file
        self._over: dict[Path, str] = {}  # what goes over the file → the variable or the flag
        data = file.data if file is not None else None
        if data is None or isinstance(data, dict):
            data = dict(data or {})
            for path, value, source in _overrides(overrides):
                if _set(data, path, value):
                    self._over[path] = source
        self.config, problems = convert(data)
        if self.config.workers > 1 and isinstance(data, dict) and data.get("storage") is None:
            self.config = msgspec.structs.replace(self.config, storage=embedded(min(self.config.workers, MAX_WORKERS)))
        known = {problem.path for problem in problems}
        found = [*find_problems(self.config), *(check(self.config) if check is not None else ())]
        problems += [problem for problem in found if not _is_told(problem.path, known)]
        self.mistakes = [*self._broken(), *sorted(map(self.mistake, problems), key=self._order)]

    def checked(self) -> Config:
        """The configuration. Raises `InvalidRequest`, which tells the mistakes, if there are any."""
        if self.mistakes:
            raise refusal(self.mistakes)
        return self.config

    def mistake(self, problem: Problem) -> Mistake:
        what = f"{option_name(problem.path) or 'configuration'} {problem.what}"
        return Mistake(self.place(problem.path), what, problem.details)

    def place(self, path: Path) -> str:
        """Where an option was given, or where it is missing."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._over:
                return self._over[path[:length]]
        if self._file is None:
            return "configuration"
        line = self._file.line(path)
        return f"{self._file.path} line {line}" if line else str(self._file.path)

    def source(self, path: Path) -> str:
        """As `place`, for an option that is right: it may also be the default."""
        is_over = any(path[:length] in self._over for length in range(1, len(path) + 1))
        if is_over or (self._file is not None and self._file.has(path)):
            return self.place(path)
        return "default"

    def _broken(self) -> Iterator[Mistake]:
        if self._file is not None:
            for broken in self._file.broken:
                place = f"{self._file.path} line {broken.line}" if broken.line else str(self._file.path)
                yield Mistake(place, broken.what, broken.details)

    @staticmethod
    def _order(mistake: Mistake) -> tuple[str, int]:
        """By line within the file."""
        place, _, line = mistake.place.rpartition(" line ")
        return (place, int(line)) if place and line.isdigit() else (mistake.place, 0)


def read(path: FilePath | None, overrides: Mapping[str, Any] | None = None, check: Check | None = None) -> Reading:
    """Read the file, if any, and lay the environment and then ``overrides`` over it.

    Keys of ``overrides`` are options such as ``log.level``, set by flags such as ``--log-level``; None overrides nothing.
    """
    return Reading(ConfigFile.read(path) if path is not None else None, overrides or {}, check)


def refusal(mistakes: list[Mistake]) -> InvalidRequest:
    """One error for all of them."""
    first, *others = mistakes
    told = [first.details, *map(str, others[: _TOLD - 1])]
    if len(mistakes) > _TOLD:
        told.append(f"and {len(mistakes) - _TOLD} more")
    return InvalidRequest(f"{first.place}: {first.what}", "; ".join(told))


def options(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every option with its value, down to single values; an empty list or mapping is one too."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from options(getattr(value, field), (*path, field))
    elif isinstance(value, dict) and value:
        for name, each in value.items():
            yield from options(each, (*path, name))
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from options(each, (*path, index))
    else:
        yield path, value


def _overrides(flags: Mapping[str, Any]) -> Iterator[tuple[Path, Any, str]]:
    for variable, (path, kind) in VARIABLES.items():
        if text := os.environ.get(variable):
            yield path, from_text(kind, text), variable
    for option, value in flags.items():
        if value is not None:
            yield tuple(option.split(".")), value, "--" + option.replace(".", "-").replace("_", "-")


def _set(data: dict[Any, Any], path: Path, value: Any) -> bool:
    """Lay a value over what the file says; not if the file has something else where a section should be."""
    *parents, name = path
    for parent in parents:
        section = data.get(parent)
        if section is not None and not isinstance(section, dict):
            return False
        section = dict(section or {})
        data[parent] = section
        data = section
    data[name] = value
    return True


def _is_told(path: Path, known: set[Path]) -> bool:
    return any(path[:length] in known for length in range(len(path) + 1))
