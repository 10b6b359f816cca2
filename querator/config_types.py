"""From plain data to the configuration's values. Every mistake is found, not only the first."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from querator.config import INVALID, Config, Path, Problem

_UNKNOWN = "is unknown"
_MISSING = "is missing"
_SHOWN = 60  # characters of a wrong value

_KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str | list[str]: "a text or a list of texts",
    str | int: "a text or a whole number",
}

S = TypeVar("S", bound=msgspec.Struct)


def convert(data: Any) -> tuple[Config, list[Problem]]:
    """The configuration, with defaults in place of what is wrong, and the problems."""
    problems: list[Problem] = []
    return _section(Config, data, (), problems), problems


def scalar_options(section: type[msgspec.Struct] = Config, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every option that is a single value and stands in no list, with its type."""
    for field in msgspec.structs.fields(section):
        if _is_section(field.type):
            yield from scalar_options(field.type, (*path, field.name))
        elif field.type in _KINDS or get_origin(field.type) is Literal:
            yield (*path, field.name), field.type


def _section(section: type[S], data: Any, path: Path, problems: list[Problem]) -> S:
    if not isinstance(data, dict):
        problems.append(Problem(path, INVALID, "it must be a mapping of options"))
        data = {}
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    known = f"there are {', '.join(fields)}"
    problems.extend(Problem((*path, str(name)), _UNKNOWN, known) for name in data if name not in fields)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        before = len(problems)
        if data.get(name) is not None or (name in data and not _has_parts(field.type)):
            values[name] = _value(field.type, data[name], (*path, name), problems)
        elif field.required:
            problems.append(Problem((*path, name), _MISSING, "it has no default"))
        if len(problems) > before and not _has_parts(field.type):
            values.pop(name, None)
            if field.required:
                values[name] = ""
    return section(**values)


def _value(kind: Any, data: Any, path: Path, problems: list[Problem]) -> Any:
    if _is_section(kind):
        return _section(kind, data, path, problems)
    if _has_parts(kind):
        if not isinstance(data, list):
            problems.append(Problem(path, INVALID, "it must be a list"))
            return []
        (part,) = get_args(kind)
        return [_section(part, each, (*path, index), problems) for index, each in enumerate(data)]
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        problems.append(Problem(path, INVALID, f"it must be {_kind_name(kind)}{_shown(data)}"))
        return None


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _has_parts(kind: Any) -> bool:
    """Whether mistakes in it are told of its parts: a section, or a list of sections."""
    return _is_section(kind) or (get_origin(kind) is list and _is_section(get_args(kind)[0]))


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is dict:
        return "a mapping of options"
    return _KINDS[kind]


def _shown(data: Any) -> str:
    if isinstance(data, str | int | float | bool):
        text = str(data)
        return f", and is '{text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}'"
    return ""


def from_text(kind: Any, text: str) -> Any:
    """What an environment variable says, in the option's type; as it is where it does not fit, to be told."""
    if kind is str or get_origin(kind) is Literal:
        return text
    if isinstance(kind, UnionType):  # one or several
        texts = text.replace(",", " ").split()
        return texts[0] if len(texts) == 1 else texts
    try:
        return msgspec.convert(text.strip().lower(), kind, strict=False)
    except msgspec.ValidationError:
        return text
