"""A configuration file in YAML that knows on which line each of its options stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from querator.config import Path, option_name

_MERGE = "tag:yaml.org,2002:merge"


class Broken(NamedTuple):
    """Why a file, or a place in it, cannot be read."""

    line: int  # from 1; 0 if it is the whole file
    what: str
    details: str


class ConfigFile:
    """Made by `read`. What is broken is in ``broken``; then ``data`` is empty."""

    def __init__(self, path: FilePath, data: Any, root: Node | None, broken: list[Broken]) -> None:
        self.path = path
        self.data = data
        self.broken = broken
        self._root = root

    @classmethod
    def read(cls, path: FilePath) -> ConfigFile:
        try:
            raw = path.read_bytes()
        except OSError as error:
            return cls(path, {}, None, [Broken(0, "configuration cannot be read", error.strerror or str(error))])
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            return cls(path, {}, None, [Broken(line, "configuration is not YAML", "it is not UTF-8")])
        loader = yaml.SafeLoader("")
        try:
            loader = yaml.SafeLoader(text)
            return cls._load(path, loader)
        except (yaml.YAMLError, RecursionError) as error:
            return cls(path, {}, None, [_broken(error, text)])
        finally:
            loader.dispose()

    @classmethod
    def _load(cls, path: FilePath, loader: yaml.SafeLoader) -> ConfigFile:
        root = loader.get_single_node()
        if root is None:
            return cls(path, {}, None, [])
        broken = list(_Walk(loader).look_at(root, ()))
        if broken:
            return cls(path, {}, root, broken)
        return cls(path, loader.construct_document(root), root, [])

    def line(self, path: Path) -> int:
        """Where an option stands, or what would hold it if it is not there; 0 if there is neither."""
        node = self._root
        line = node.start_mark.line + 1 if node is not None and not path else 0
        for step in path:
            found = _part(node, step)
            if found is None:
                break
            line, node = found
        return line

    def has(self, path: Path) -> bool:
        node = self._root
        for step in path:
            found = _part(node, step)
            if found is None:
                return False
            node = found[1]
        return node is not None


def _part(node: Node | None, step: str | int) -> tuple[int, Node] | None:
    """The line and the node of an entry."""
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        part = node.value[step]
        return part.start_mark.line + 1, part
    if isinstance(node, MappingNode):
        # What is merged into a mapping stands before its own entries, which win.
        for key, value in reversed(node.value):
            if isinstance(key, ScalarNode) and key.value == str(step):
                return key.start_mark.line + 1, value
    return None


class _Walk:
    """Looks at each node once: for keys that are there twice, values that cannot be, and nodes within themselves."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._seen: set[int] = set()
        self._above: set[int] = set()

    def look_at(self, node: Node, path: Path) -> Iterator[Broken]:
        if id(node) in self._above:
            yield Broken(node.start_mark.line + 1, f"{option_name(path)} is invalid", "it contains itself")
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        self._above.add(id(node))
        if isinstance(node, ScalarNode):
            yield from self._scalar(node, path)
        elif isinstance(node, SequenceNode):
            for index, part in enumerate(node.value):
                yield from self.look_at(part, (*path, index))
        elif isinstance(node, MappingNode):
            yield from self._mapping(node, path)
        self._above.discard(id(node))

    def _scalar(self, node: ScalarNode, path: Path) -> Iterator[Broken]:
        try:
            if node.tag != _MERGE:
                self._loader.construct_object(node)
        except yaml.constructor.ConstructorError as error:
            yield Broken(node.start_mark.line + 1, f"{option_name(path)} is invalid", str(error.problem))
        except ValueError as error:
            yield Broken(node.start_mark.line + 1, f"{option_name(path)} is invalid", str(error))

    def _mapping(self, node: MappingNode, path: Path) -> Iterator[Broken]:
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                yield Broken(line, f"{option_name(path) or 'configuration'} is invalid", "a name must be a text")
                continue
            here = (*path, key.value)
            if key.value in lines:
                yield Broken(
                    line, f"{option_name(here)} is invalid", f"it is there twice, first on line {lines[key.value]}"
                )
            lines[key.value] = line
            yield from self.look_at(key, here)
            yield from self.look_at(value, here)


def _broken(error: yaml.YAMLError | RecursionError, text: str) -> Broken:
    what = "configuration is not YAML"
    if isinstance(error, yaml.reader.ReaderError):
        return Broken(text.count("\n", 0, error.position) + 1, what, str(error.reason))
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        details = ", ".join(part for part in (error.context, error.problem) if part)
        return Broken(mark.line + 1 if mark else 0, what, details)
    return Broken(0, what, "it is nested too deeply" if isinstance(error, RecursionError) else str(error))
