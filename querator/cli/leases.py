"""The commands about items under lease: complete, retry, renew."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from querator.cli.output import say, write_json
from querator.cli.session import DURATION, INSTANT, Session, examples, pass_session, queue_argument, session_options

if TYPE_CHECKING:
    from querator.client import Client

F = TypeVar("F", bound=Callable[..., Any])


class _Line(msgspec.Struct):
    """What is read of a line of `querator reserve --json`."""

    id: str
    partition: int = 0


_read_line = msgspec.json.Decoder(_Line).decode


def _which(command: F) -> F:
    """Which items a command is about."""
    partition = click.option(
        "--partition", type=click.IntRange(0), default=0, show_default=True, help="Of the ids that are named."
    )
    ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")
    return queue_argument(ids(partition(command)))


def _by_partition(ids: Iterable[str], partition: int) -> dict[int, list[str]]:
    """The ids by partition; ``-`` stands for those on stdin: an id a line, or lines of `querator reserve --json`."""
    found: dict[int, list[str]] = defaultdict(list)
    for item_id in ids:
        if item_id != "-":
            found[partition].append(item_id)
            continue
        for text in filter(None, map(str.strip, sys.stdin)):
            try:
                line = _read_line(text) if text.startswith("{") else _Line(text, partition)
            except msgspec.MsgspecError as error:
                raise ValueError(f"{text[:60]!r} is not a line of `querator reserve --json`: {error}") from None
            found[line.partition].append(line.id)
    return found


def _report(session: Session, verb: str, ids: dict[int, list[str]], **more: object) -> None:
    count = sum(map(len, ids.values()))
    if session.is_json:
        write_json({verb: count, **more})
    else:
        details = "".join(f", {name.replace('_', ' ')} {value}" for name, value in more.items())
        say(f"{verb} {count} item{'' if count == 1 else 's'}{details}")


@click.command(
    epilog=examples(
        "querator complete mail --partition 0 ID",
        "querator reserve mail --count 10 --json | querator complete mail -",
    )
)
@_which
@session_options
@pass_session
def complete(session: Session, queue_name: str, ids: tuple[str, ...], partition: int) -> None:
    """Tell that reserved items are done. All of a partition's, or none; - reads ids from stdin."""
    named = _by_partition(ids, partition)

    async def work(client: Client) -> None:
        for place, place_ids in named.items():
            await client.complete(queue_name, place, place_ids)

    session.run(work)
    _report(session, "completed", named)


@click.command(
    epilog=examples("querator retry mail ID", "querator retry mail ID --delay 10m", "querator retry mail ID --dead")
)
@_which
@click.option("--delay", type=DURATION, help="Ready again after this time; default: as the queue's policy says.")
@click.option("--at", type=INSTANT, help="Ready again at this instant.")
@click.option("--dead", is_flag=True, help="To the dead queue.")
@session_options
@pass_session
def retry(
    session: Session,
    /,
    queue_name: str,
    ids: tuple[str, ...],
    partition: int,
    delay: str | None,
    at: datetime | None,
    dead: bool,
) -> None:
    """Give reserved items back. All of a partition's, or none; - reads ids from stdin."""
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at exclude each other")
    named = _by_partition(ids, partition)

    async def work(client: Client) -> None:
        from querator.client_items import RetryItem

        for place, place_ids in named.items():
            items = [RetryItem(item_id, delay=delay, at=at, dead=dead) for item_id in place_ids]
            await client.retry(queue_name, place, items)

    session.run(work)
    _report(session, "gave back", named)


@click.command(epilog=examples("querator renew mail ID --lease-timeout 5m"))
@_which
@click.option("--lease-timeout", type=DURATION, help="From now on; default: the queue's.")
@session_options
@pass_session
def renew(
    session: Session, /, queue_name: str, ids: tuple[str, ...], partition: int, lease_timeout: str | None
) -> None:
    """Extend the lease of reserved items. All of a partition's, or none; - reads ids from stdin."""
    named = _by_partition(ids, partition)

    async def work(client: Client) -> list[datetime]:
        return [
            await client.renew(queue_name, place, place_ids, lease_timeout=lease_timeout)
            for place, place_ids in named.items()
        ]

    deadlines = session.run(work)
    _report(session, "renewed", named, lease_deadline=min(deadlines, default=None))
