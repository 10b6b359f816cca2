"""A container file as data: its stages and their instructions, and what of a checkout an engine may read."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

_COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)
_FLAGS = re.compile(r"(?:--[a-z-]+(?:=\S+)?\s+)+")


class Instruction(NamedTuple):
    word: str
    rest: str

    @property
    def arguments(self) -> list[str]:
        """Without flags; of the JSON form and of the plain form alike."""
        plain = self.rest[len(self._leading) :]
        return json.loads(plain) if plain.startswith("[") else shlex.split(plain)

    @property
    def flags(self) -> dict[str, str]:
        pairs = (flag.removeprefix("--").partition("=") for flag in self._leading.split())
        return {name: value for name, _, value in pairs}

    @property
    def _leading(self) -> str:
        found = _FLAGS.match(self.rest)
        return found[0] if found else ""


class Stage(NamedTuple):
    base: str
    name: str
    instructions: list[Instruction]

    def all(self, word: str) -> list[Instruction]:
        return [each for each in self.instructions if each.word == word]

    def one(self, word: str) -> Instruction:
        (found,) = self.all(word)
        return found

    def environment(self) -> dict[str, str]:
        """What ENV sets, as it is written."""
        pairs = [argument.partition("=") for each in self.all("ENV") for argument in each.arguments]
        return {name: value for name, _, value in pairs}


def stages(path: Path) -> list[Stage]:
    """Everything from one FROM to the next is a stage."""
    text = _COMMENT.sub("", path.read_text(encoding="utf-8")).replace("\\\n", " ")
    found: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, *name = rest.split()
            found.append(Stage(base, name[1] if name else "", []))
        else:
            found[-1].instructions.append(Instruction(word, rest.strip()))
    return found


def allowed(ignore_file: Path) -> list[str]:
    """The paths that an ignore file lets through, which begins with forbidding all."""
    lines = [line for line in ignore_file.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert lines[0] == "*", "everything is forbidden first"
    return [line[1:] for line in lines if line.startswith("!")]
