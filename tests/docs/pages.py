"""The documentation as data: its pages, their code blocks, tables and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANSWERS = ("json", "text")


class Page(NamedTuple):
    path: Path
    text: str

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        """Without its code blocks."""
        return _BLOCK.sub("", self.text)


class Example(NamedTuple):
    """A code block, with the block of what it answers if one follows directly."""

    language: str
    code: str
    answer: str


def page(path: str) -> Page:
    return Page(ROOT / path, (ROOT / path).read_text(encoding="utf-8"))


def pages() -> list[Page]:
    """Everything that people read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench/README.md"]
    return [page(str(path.relative_to(ROOT))) for path in sorted(found)]


def examples(of: Page, *languages: str) -> list[Example]:
    """The code blocks in these languages, in order."""
    blocks = list(_BLOCK.finditer(of.text))
    found = []
    for index, block in enumerate(blocks):
        if block[1] not in languages:
            continue
        after = blocks[index + 1] if index + 1 < len(blocks) else None
        follows = after is not None and after[1] in _ANSWERS and not of.text[block.end() : after.start()].strip()
        found.append(Example(block[1], block[2], after[2] if after is not None and follows else ""))
    return found


def table(of: Page, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, row by row, without the row of names."""
    _, _, below = of.text.partition(f"\n{heading}\n")
    assert below, f"{of} has no heading '{heading}'"
    rows: list[list[str]] = []
    for line in below.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows or line.startswith("#"):
            break
    assert len(rows) > 2, f"{of} has no table under '{heading}'"
    return rows[2:]


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)
