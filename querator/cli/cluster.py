"""`querator cluster`: which instances there are, and who owns what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from querator import wire
from querator.cli.output import write_json, write_rows
from querator.cli.session import Session, examples, pass_session, queue_argument, session_options

if TYPE_CHECKING:
    from querator.client import Client

_NOBODY = "-"


@click.group(epilog=examples("querator cluster info", "querator cluster route mail"))
def cluster() -> None:
    """Look at the cluster: its instances, and who owns what."""


@cluster.command(
    epilog=examples("querator cluster info", "querator cluster info --queues", "querator cluster info --json")
)
@click.option("--queues", is_flag=True, help="List the logical queues and their owners instead of the instances.")
@session_options
@pass_session
def info(session: Session, queues: bool) -> None:
    """Show the instances, or the logical queues, as the server that is asked knows them."""
    answer = session.run(_ask)
    if session.is_json:
        write_json(answer)
    elif queues:
        rows = [
            (each.queue_name, each.number, each.instance or _NOBODY, each.epoch, _joined(each.partitions))
            for each in answer.logical_queues
        ]
        write_rows(("queue", "number", "instance", "epoch", "partitions"), rows)
    else:
        columns = ("instance", "host", "addresses", "backends", "version", "state")
        write_rows(columns, [_instance_row(each) for each in answer.instances])


async def _ask(client: Client) -> wire.ClusterInfoAnswer:
    """With all logical queues, not only the first page."""
    answer = await client.cluster_info(limit=1)
    return msgspec.structs.replace(answer, logical_queues=[each async for each in client.iter_logical_queues()])


@cluster.command(epilog=examples("querator cluster route mail", "querator cluster route mail --json"))
@queue_argument
@session_options
@pass_session
def route(session: Session, queue_name: str) -> None:
    """Show which instance owns each partition of a queue, and where clients reach it."""
    answer = session.run(lambda client: client.cluster_route(queue_name))
    if session.is_json:
        write_json(answer)
        return
    rows = [
        (each.partition, each.instance or _NOBODY, each.address or _NOBODY, each.logical_queue, each.epoch)
        for each in answer.partitions
    ]
    write_rows(("partition", "instance", "address", "logical queue", "epoch"), rows)


def _instance_row(instance: wire.InstanceInfo) -> tuple[str, ...]:
    states = [word for word, holds in (("leader", instance.leader), ("draining", instance.draining)) if holds]
    return (
        instance.id,
        instance.host,
        _joined(instance.addresses),
        _joined(instance.backends),
        instance.version,
        _joined(states),
    )


def _joined(values: list[str] | list[int]) -> str:
    return " ".join(map(str, values)) or _NOBODY
