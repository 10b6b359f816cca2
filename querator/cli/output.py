"""How results are written: tables and colour on a terminal, plain tab-separated text elsewhere, JSON on demand."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from querator.durations import format_duration, format_instant, from_instant

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 60  # characters of a payload in a table


def is_terminal() -> bool:
    return sys.stdout.isatty()


def write_json(value: Any) -> None:
    """One document on one line, in the form of the wire."""
    write_bytes(msgspec.json.encode(value))


def write_bytes(line: bytes) -> None:
    """A line as it is, whatever its encoding; seen at once by whoever reads it."""
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    if is_terminal():
        from rich.console import Console

        Console().print(make_table(columns, rows, title))
        return
    write_bytes("\t".join(columns).encode())
    for row in rows:
        write_bytes("\t".join(_plain(cell) for cell in row).encode("utf-8", "surrogateescape"))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="bold cyan",
        pad_edge=False,
        collapse_padding=True,
    )
    shown = [list(row) for row in rows]
    for place, column in enumerate(columns):
        is_number = bool(shown) and all(isinstance(row[place], int | float) for row in shown)
        # Only the last column, which holds the payload where there is one, gives way on a narrow terminal.
        is_last = place == len(columns) - 1
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=not is_last)
    for row in shown:
        # As text, so that no name or payload is read as markup.
        table.add_row(*(Text(f"{cell:,}" if _is_count(cell) else str(cell)) for cell in row))
    return table


def write_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    if is_terminal():
        shown = list(pairs)
        width = max(len(name) for name, _ in shown)
        for name, value in shown:
            click.echo(f"{click.style(name.ljust(width), fg='cyan')}  {value}")
        return
    for name, value in pairs:
        write_bytes(f"{name}\t{_plain(value)}".encode())


def say(text: str) -> None:
    """What was done, for people; programs look at the exit code."""
    click.secho(text, fg="green")


def note(text: str) -> None:
    """Beside the results: on stderr."""
    click.secho(text, err=True, dim=True)


def note_partial(missing: Sequence[str]) -> None:
    """What is shown is not all."""
    who = (
        f"; these instances did not answer: {', '.join(missing)}" if missing else "; some partitions have no owner now"
    )
    note(f"what is shown is not all{who}")


def show_payload(payload: bytes) -> str:
    """A payload in a table: its beginning, on one line."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"<{len(payload)} bytes>"
    flat = "".join(character if character.isprintable() else " " for character in text[: _SHOWN + 1])
    return flat if len(text) <= _SHOWN else f"{flat[:_SHOWN]}…"


def show_limit(text: str) -> str:
    """A duration of the wire that means no limit when it is zero."""
    return "never" if text in {"", "0s"} else text


def show_age(text: str) -> str:
    """A duration of the wire, which leaves zero out."""
    return text or format_duration(0)


def show_instant(instant: datetime | msgspec.UnsetType) -> str:
    return "-" if isinstance(instant, msgspec.UnsetType) else format_instant(from_instant(instant))


def item_document(item: msgspec.Struct) -> dict[str, Any]:
    """An item in the form of the wire, with its payload as text where it is one."""
    document: dict[str, Any] = msgspec.to_builtins(item)
    for name in ("bytes", "payload"):
        if name in document:
            try:
                document["utf8"] = getattr(item, "payload").decode()  # noqa: B009  every item has one
                del document[name]
            except UnicodeDecodeError:
                pass
    return document


def _is_count(cell: object) -> bool:
    return isinstance(cell, int) and not isinstance(cell, bool)


def _plain(cell: object) -> str:
    return str(cell).replace("\t", " ").replace("\n", " ").replace("\r", " ")
