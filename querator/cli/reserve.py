"""`querator reserve`: items out of a queue, for people and for pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from querator.cli.output import (
    is_terminal,
    item_document,
    note,
    show_instant,
    show_payload,
    write_bytes,
    write_json,
    write_rows,
)
from querator.cli.session import DURATION, Session, examples, pass_session, queue_argument, session_options

if TYPE_CHECKING:
    from querator.client import Client
    from querator.client_items import ReservedBatch

_MORE = "100ms"  # what is waited for further items, once there were some
_POLL = "1m"  # how long one call of --follow waits
_COLUMNS = ("partition", "id", "attempts", "lease deadline", "payload")


@click.command(
    epilog=examples(
        "querator reserve mail --count 10",
        "querator reserve mail --count 10 --complete > payloads.txt",
        "querator reserve mail --follow --complete --json | jq .utf8",
    )
)
@queue_argument
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many at most.")
@click.option("--wait", type=DURATION, default="5s", show_default=True, help="How long to wait for the first item.")
@click.option("--lease-timeout", type=DURATION, help="How long they are leased; default: the queue's.")
@click.option("--client-id", default="", help="Who reserves, for the server's records.")
@click.option("--complete", is_flag=True, help="Complete them once they are written; writes payloads only.")
@click.option("--follow", is_flag=True, help="Go on until interrupted; --count is then of one request.")
@session_options
@pass_session
def reserve(
    session: Session,
    /,
    queue_name: str,
    count: int,
    wait: str,
    lease_timeout: str | None,
    client_id: str,
    complete: bool,
    follow: bool,
) -> None:
    """Take items out of a queue, under lease.

    Without --complete they come back when their lease ends, unless `querator complete` or `retry` is called with their
    partition and id.
    """
    printer = _Printer(session.is_json, payloads_only=complete)

    async def work(client: Client) -> int:
        taken = 0
        while follow or taken < count:
            patience = _POLL if follow else (_MORE if taken else wait)
            size = min(1000, count if follow else count - taken)
            batch = await client.reserve(
                queue_name, size, timeout=patience, lease_timeout=lease_timeout, client_id=client_id
            )
            if not batch and not follow:
                break
            printer.write(batch)
            if complete:
                await client.complete(batch)
            taken += len(batch)
        return taken

    if not session.run(work):
        note(f"no item of '{queue_name}' was ready within {wait}")


class _Printer:
    """Writes each batch as it comes."""

    def __init__(self, is_json: bool, payloads_only: bool) -> None:
        self._is_json = is_json
        self._payloads_only = payloads_only

    def write(self, batch: ReservedBatch) -> None:
        if not batch:
            return
        if self._is_json:
            for item in batch:
                write_json({"partition": item.partition, **item_document(item)})
        elif self._payloads_only:
            for item in batch:
                write_bytes(item.payload)
        elif is_terminal():
            rows = [
                (item.partition, item.id, item.attempts, f"{item.lease_deadline:%H:%M:%S}", show_payload(item.payload))
                for item in batch
            ]
            write_rows(_COLUMNS, rows)
        else:
            for item in batch:
                start = f"{item.partition}\t{item.id}\t{item.attempts}\t{show_instant(item.lease_deadline)}\t"
                write_bytes(start.encode() + item.payload)
