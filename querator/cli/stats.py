"""`querator stats`: what queues hold, once or again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from querator import wire
from querator.cli.output import is_terminal, make_table, note_partial, show_age, write_json, write_rows
from querator.cli.session import DURATION, Session, examples, pass_session, queue_argument, session_options
from querator.durations import parse_duration

if TYPE_CHECKING:
    from querator.client import Client

COLUMNS = ("partition", "state", "ready", "leased", "scheduled", "age", "leased age", "failures")


@click.command(epilog=examples("querator stats mail", "querator stats mail --watch --interval 500ms"))
@queue_argument
@click.option("--watch", is_flag=True, help="Go on until interrupted.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="Between two looks.")
@session_options
@pass_session
def stats(session: Session, queue_name: str, watch: bool, interval: str) -> None:
    """Show what a queue holds, and who waits for it."""
    if not watch:
        _write(session, session.run(lambda client: client.stats(queue_name)))
        return
    interval_s = max(0.05, parse_duration(interval) / 1000)

    async def work(client: Client) -> None:
        if is_terminal() and not session.is_json:
            await _watch_live(client, queue_name, interval_s)
        while True:
            _write(session, await client.stats(queue_name))
            await asyncio.sleep(interval_s)

    session.run(work)


async def _watch_live(client: Client, queue_name: str, interval_s: float) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            answer = await client.stats(queue_name)
            live.update(make_table(COLUMNS, _rows(answer), _title(answer)), refresh=True)
            await asyncio.sleep(interval_s)


def _write(session: Session, answer: wire.StatsAnswer) -> None:
    if session.is_json:
        write_json(answer)
    else:
        write_rows(COLUMNS, _rows(answer), _title(answer))
        if answer.partial:
            note_partial(answer.missing)


def _title(answer: wire.StatsAnswer) -> str:
    queues = answer.logical_queues
    return (
        f"{answer.queue_name}: waiting {sum(one.produce_waiting for one in queues)} produces, "
        f"{sum(one.lease_waiting for one in queues)} reserves, {sum(one.complete_waiting for one in queues)} completes; "
        f"{sum(one.in_flight for one in queues)} in flight"
    )


def _rows(answer: wire.StatsAnswer) -> list[tuple[object, ...]]:
    partitions = [one for queue in answer.logical_queues for one in queue.partitions]
    return [
        (
            one.partition,
            one.state or "-",
            one.total - one.total_leased,
            one.total_leased,
            one.scheduled,
            show_age(one.average_age),
            show_age(one.average_leased_age),
            one.failures,
        )
        for one in sorted(partitions, key=lambda one: one.partition)
    ]
