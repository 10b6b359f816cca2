"""The benchmark's command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bench import command
from bench.command import bench

README = Path(command.__file__).parent / "README.md"
COMMANDS = [
    shlex.split(line, comments=True)[2:]
    for line in README.read_text().splitlines()
    if line.startswith("querator bench")
]


def test_the_readme_shows_commands() -> None:
    """There is something for the next test to look at."""
    assert len(COMMANDS) > 5


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_commands_of_the_readme_parse(arguments: list[str]) -> None:
    """Every command that the README shows names a preset that exists, and options that it has."""
    context = bench.make_context("bench", list(arguments))
    rest = [*context._protected_args, *context.args]
    if not rest:
        return
    name, preset, options = bench.resolve_command(context, rest)
    assert preset is not None
    preset.make_context(name, options, parent=context)
