"""`querator items`: what is in a partition, without leasing anything."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from querator import wire
from querator.cli.output import say, show_instant, show_payload, write_json, write_rows
from querator.cli.session import Session, examples, pass_session, queue_argument, session_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from querator.client import Client

_COLUMNS = ("id", "leased", "attempts", "kind", "reference", "created at", "payload")
_SCHEDULED = ("id", "enqueue at", "attempts", "kind", "reference", "created at", "payload")
_read_item = msgspec.json.Decoder(wire.StorageItem).decode

_partition = click.option("--partition", type=click.IntRange(0), default=0, show_default=True, help="Of the queue.")
_limit = click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most; 0: all.")


@click.group()
def items() -> None:
    """Look into partitions, and write to them."""


@items.command("list", epilog=examples("querator items list mail --partition 1 --limit 20"))
@queue_argument
@_partition
@_limit
@session_options
@pass_session
def list_(session: Session, queue_name: str, partition: int, limit: int) -> None:
    """List items that are ready or leased, in order. With --json a line each, which `items import` reads."""
    found = session.run(lambda client: _first(client.iter_items(queue_name, partition), limit))
    if session.is_json:
        _write_lines(found)
        return
    rows = [
        (
            item.id,
            "yes" if item.is_leased else "no",
            item.attempts,
            item.kind or "-",
            item.reference or "-",
            show_instant(item.created_at),
            show_payload(item.payload),
        )
        for item in found
    ]
    write_rows(_COLUMNS, rows)


@items.command("scheduled", epilog=examples("querator items scheduled mail"))
@queue_argument
@_partition
@_limit
@session_options
@pass_session
def scheduled(session: Session, queue_name: str, partition: int, limit: int) -> None:
    """List scheduled items, the earliest first. With --json a line each."""
    found = session.run(lambda client: _first(client.iter_scheduled(queue_name, partition), limit))
    if session.is_json:
        _write_lines(found)
        return
    rows = [
        (
            item.id,
            show_instant(item.enqueue_at),
            item.attempts,
            item.kind or "-",
            item.reference or "-",
            show_instant(item.created_at),
            show_payload(item.payload),
        )
        for item in found
    ]
    write_rows(_SCHEDULED, rows)


@items.command(
    "import",
    epilog=examples(
        "querator items list mail --limit 0 --json > items.jsonl", "querator items import mail items.jsonl"
    ),
)
@queue_argument
@click.argument("source", type=click.File("rb"), metavar="FILE")
@_partition
@click.option("--batch", type=click.IntRange(1, 1000), default=500, show_default=True, help="Items a request.")
@session_options
@pass_session
def import_(session: Session, queue_name: str, source: BinaryIO, partition: int, batch: int) -> None:
    """Write items into a partition, with new ids: a line of JSON each, as `items list --json` writes it."""

    async def work(client: Client) -> int:
        count = 0
        lines = (line for line in source if line.strip())
        while chunk := [_read(line) for line in islice(lines, batch)]:
            await client.import_items(queue_name, partition, chunk)
            count += len(chunk)
        return count

    count = session.run(work)
    if session.is_json:
        write_json({"queue_name": queue_name, "imported": count})
    else:
        say(f"imported {count} item{'' if count == 1 else 's'} into '{queue_name}'")


@items.command("delete", epilog=examples("querator items delete mail ID --partition 1"))
@queue_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_partition
@session_options
@pass_session
def delete(session: Session, queue_name: str, ids: tuple[str, ...], partition: int) -> None:
    """Remove items from a partition, whatever their state."""
    session.run(lambda client: client.delete_items(queue_name, partition, ids))
    if session.is_json:
        write_json({"queue_name": queue_name, "deleted": len(ids)})
    else:
        say(f"deleted {len(ids)} item{'' if len(ids) == 1 else 's'} of '{queue_name}'")


async def _first(source: AsyncIterator[wire.StorageItem], limit: int) -> list[wire.StorageItem]:
    found: list[wire.StorageItem] = []
    async for item in source:
        found.append(item)
        if limit and len(found) >= limit:
            break
    return found


def _write_lines(found: Iterable[wire.StorageItem]) -> None:
    for item in found:
        write_json(item)


def _read(line: bytes) -> wire.StorageItem:
    """An item to import: the same, but nobody has it and its id is to come."""
    try:
        item = _read_item(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{line[:60]!r} is not an item: {error}") from None
    return msgspec.structs.replace(item, id="", is_leased=False, lease_deadline=msgspec.UNSET)
