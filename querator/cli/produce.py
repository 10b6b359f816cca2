"""`querator produce`: items from the command line, from files, from other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from querator import wire
from querator.cli.output import say, write_json
from querator.cli.session import DURATION, INSTANT, Session, examples, pass_session, queue_argument, session_options
from querator.clock import SystemClock
from querator.durations import parse_duration, to_instant
from querator.errors import QueratorError

if TYPE_CHECKING:
    from querator.client import Client

_read_item = msgspec.json.Decoder(wire.ProduceItem).decode

# Called with the number of items that were stored and the bytes of input they took.
OnStored = Callable[[int, int], None]


@click.command(
    epilog=examples(
        'querator produce mail "hello" "world"',
        "querator produce mail --file items.txt",
        "tail -f log | querator produce mail --file - --batch 1",
        "querator produce mail --file items.jsonl --format json",
    )
)
@queue_argument
@click.argument("payloads", nargs=-1, metavar="[PAYLOAD]...")
@click.option("--file", "source", type=click.File("rb"), help="One item from each line of the file; -: of stdin.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help='What a line of the file is: a payload, or an item as in the API, such as {"utf8": "hello", "kind": "a"}.',
)
@click.option("--batch", type=click.IntRange(1, 1000), default=500, show_default=True, help="Items a request.")
@click.option("--encoding", default="", help="What the payload is written in, e.g. application/json.")
@click.option("--kind", default="", help="What the item is about.")
@click.option("--reference", default="", help="A name of yours for the item.")
@click.option("--delay", type=DURATION, help="Not ready before this time has passed.")
@click.option("--at", type=INSTANT, help="Not ready before this instant.")
@click.option("--expire", "expire_timeout", type=DURATION, help="Dead after this time, if not done.")
@click.option("--retry-unknown", is_flag=True, help="Repeat a request whose answer was lost; may store items twice.")
@session_options
@pass_session
def produce(
    session: Session,
    /,
    queue_name: str,
    payloads: tuple[str, ...],
    source: BinaryIO | None,
    form: str,
    batch: int,
    delay: str | None,
    at: datetime | None,
    expire_timeout: str | None,
    retry_unknown: bool,
    **attributes: str,
) -> None:
    """Put items into a queue. They are durable when the command ends well.

    Items of a file are sent in order. If one request fails the command ends, and says how many items were stored.
    """
    if bool(payloads) == (source is not None):
        raise click.UsageError("name payloads, or a --file of them")
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at exclude each other")
    enqueue_at = at
    if delay is not None:
        enqueue_at = to_instant(SystemClock().now_ms() + parse_duration(delay))

    def item(payload: bytes) -> wire.ProduceItem:
        when = msgspec.UNSET if enqueue_at is None else enqueue_at
        return wire.ProduceItem(payload=payload, enqueue_at=when, expire_timeout=expire_timeout or "", **attributes)

    read: Callable[[bytes], wire.ProduceItem] = item if form == "lines" or source is None else _read_item
    lines: Iterable[bytes] = map(os.fsencode, payloads) if source is None else source
    with _progress(source) as on_stored:

        async def send(client: Client) -> int:
            return await _send(client, queue_name, lines, read, batch, retry_unknown, on_stored)

        count = session.run(send)
    if session.is_json:
        write_json({"queue_name": queue_name, "produced": count})
    else:
        say(f"produced {count} item{'' if count == 1 else 's'} into '{queue_name}'")


async def _send(
    client: Client,
    queue_name: str,
    lines: Iterable[bytes],
    read: Callable[[bytes], wire.ProduceItem],
    batch: int,
    retry_unknown: bool,
    on_stored: OnStored,
) -> int:
    count = 0
    for number, chunk in enumerate(_chunks(lines, batch)):
        try:
            items = [_read(read, line, number * batch + place) for place, line in enumerate(chunk, 1)]
            request = wire.ProduceRequest(queue_name=queue_name, items=items)
            await client.produce_wire(request, retry_unknown=retry_unknown)
        except (QueratorError, ValueError) as error:
            if count:
                error.add_note(f"{count} items were stored before")
            raise
        count += len(chunk)
        on_stored(len(chunk), sum(map(len, chunk)))
    return count


def _read(read: Callable[[bytes], wire.ProduceItem], line: bytes, number: int) -> wire.ProduceItem:
    try:
        return read(line.removesuffix(b"\n").removesuffix(b"\r"))
    except msgspec.MsgspecError as error:
        raise ValueError(f"line {number} is not an item: {error}") from None


def _chunks(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    source = iter(lines)
    while chunk := list(islice(source, size)):
        yield chunk


@contextmanager
def _progress(source: BinaryIO | None) -> Iterator[OnStored]:
    """A bar on stderr while a file is read; its length is known of a real file."""
    if source is None or not sys.stderr.isatty():
        yield lambda _count, _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    status = os.fstat(source.fileno())
    total = status.st_size or None
    counts = (TextColumn("{task.fields[items]:,} items"), TextColumn("{task.fields[rate]:,.0f}/s"))
    console = Console(stderr=True)
    with Progress(BarColumn(), *counts, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=total, items=0, rate=0.0)

        def stored(count: int, size: int) -> None:
            shown = progress.tasks[0]
            items = shown.fields["items"] + count
            progress.update(task, advance=size, items=items, rate=items / (shown.elapsed or 1.0))

        yield stored
