"""What the documentation names exists: files, folders, headings, targets of make, calls, decisions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from querator import wire
from tests.docs.pages import ROOT, Page, examples, page, pages, quoted

ROOMS = ("api", "bench", "cluster", "deploy", "docs", "pipeline", "querator", "requirements", "storage", "tests")
WRITTEN = {"bench/results/"}  # not in the repository, but made when it is used
LINK = re.compile(r"\]\(([^)\s]+)\)")
REJECTED = re.compile(r"^## Rejected$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"(?<![\w/.*<>])[\w/]+\.(?:py|sql)\b")


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def broken_links(of: Page) -> Iterator[str]:
    for target in LINK.findall(of.prose):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (of.path.parent / path).resolve() if path else of.path
        if not file.exists():
            yield f"{of}: there is no {target}"
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{of}: {path or 'it'} has no heading for #{anchor}"


def missing_paths(of: Page) -> Iterator[str]:
    """Paths from the root in backticks. What a decision rejects does not exist on purpose."""
    for name in quoted(REJECTED.sub("", of.prose)):
        in_a_room = name.partition("/")[0] in ROOMS and re.fullmatch(r"[\w./-]+/[\w./-]*", name)
        if in_a_room and name not in wire.SHAPES and name not in WRITTEN and not (ROOT / name).exists():
            yield f"{of}: there is no {name}"


@pytest.mark.parametrize("of", pages(), ids=str)
def test_links_and_paths_lead_somewhere(of: Page) -> None:
    """Every relative link, its heading, and every path that is named from the root exists."""
    assert [*broken_links(of), *missing_paths(of)] == []


def test_the_map_names_modules_that_exist() -> None:
    """Every module in the architecture's map lies in one of the rooms."""
    rooms = ("api", "cluster", "querator", "storage", "tests")
    there = {path for room in rooms for path in (ROOT / room).rglob("*")}
    names = set(MODULE.findall(page("docs/architecture.md").text))
    assert len(names) > 30
    missing = [name for name in sorted(names) if not any(str(path).endswith(f"/{name}") for path in there)]
    assert missing == []


def test_the_map_names_every_module_of_the_server() -> None:
    """A module that a request passes, and that the map does not show, is missing there."""
    text = page("docs/architecture.md").text
    rooms = {"api": set[str](), "cluster": set[str](), "storage": {"statements.py"}}
    for room, unnamed in rooms.items():
        modules = {path.name for path in (ROOT / room).glob("*.py")} - unnamed - {"__init__.py"}
        ours = {name for name in modules if name.partition(".")[0] not in text}
        assert ours <= {"metrics.py", "openapi.py"}, f"{room}: {ours}"


@pytest.mark.parametrize("of", pages(), ids=str)
def test_targets_of_make_exist(of: Page) -> None:
    """Whoever types `make …` as the documentation says finds that target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    typed = [name for name in quoted(of.prose) if name.startswith("make ")]
    typed += [line for example in examples(of, "sh") for line in example.code.splitlines() if line.startswith("make ")]
    assert {line.split()[1] for line in typed if re.match(r"make [a-z]", line)} <= targets


def test_every_call_is_in_the_api_page() -> None:
    """docs/api.md names each call that the server answers, and no other."""
    named = {name for name in quoted(page("docs/api.md").prose) if re.fullmatch(r"[a-z]+(?:/[a-z]+)?\.[a-z]+", name)}
    assert {name for name in named if name.partition(".")[0] in _nouns()} == set(wire.SHAPES)


def _nouns() -> set[str]:
    return {call.partition(".")[0] for call in wire.SHAPES}


def test_every_decision_is_listed() -> None:
    """The list of decisions names each file beside it, and each has its parts."""
    listing = page("docs/adr/README.md")
    files = sorted(path.name for path in listing.path.parent.glob("0*.md"))
    assert LINK.findall(listing.text) == files
    for name in files:
        text = page(f"docs/adr/{name}").text
        for part in ("Context", "Decision", "Rejected", "Consequences"):
            assert f"\n## {part}\n" in text, f"{name} has no {part}"


def test_points_to_decisions_hit() -> None:
    """A comment or a message that points to a decision by its path points to one that exists."""
    numbers = {path.name[:4] for path in (ROOT / "docs/adr").glob("0*.md")}
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")] + [ROOT / "pyproject.toml"]
    found = {
        number
        for path in sources
        for number in re.findall(r"(?:adr/|ADR )(\d{4})", path.read_text(encoding="utf-8", errors="replace"))
    }
    assert found <= numbers
