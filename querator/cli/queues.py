"""The commands that look after queues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from querator import wire
from querator.cli.output import (
    is_terminal,
    note_partial,
    say,
    show_age,
    show_instant,
    show_limit,
    write_json,
    write_pairs,
    write_rows,
)
from querator.cli.session import DURATION, Session, examples, pass_session, queue_argument, session_options

if TYPE_CHECKING:
    from querator.client import Client
    from querator.client_items import RetryPolicy

F = TypeVar("F", bound=Callable[..., Any])


class _LogicalQueues(click.ParamType[str]):
    name = "auto|number"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from querator.queues import read_logical_queues

        try:
            read_logical_queues(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


_LOGICAL_QUEUES = _LogicalQueues()


def _settings(command: F) -> F:
    """The options of create and update."""
    options = (
        click.option("--partitions", type=click.IntRange(1), help="How many partitions it has."),
        click.option("--logical-queues", type=_LOGICAL_QUEUES, help="Over how many its partitions are spread."),
        click.option("--lease-timeout", type=DURATION, help="How long a reserved item is leased, e.g. 1m."),
        click.option("--expire-timeout", type=DURATION, help="When an item that was not done is dead; 0: never."),
        click.option("--max-attempts", type=click.IntRange(0), help="How often an item is handed out; 0: no limit."),
        click.option("--dead-queue", help="The queue to which dead items go."),
        click.option("--reference", help="A note of yours."),
        click.option("--namespace", help="To list queues by."),
        click.option("--retry-base", type=DURATION, help="The delay before the first retry; 0: none."),
        click.option("--retry-factor", type=click.FloatRange(1), help="By which the delay grows with each attempt."),
        click.option("--retry-max", type=DURATION, help="The longest delay."),
        click.option("--retry-jitter", type=click.FloatRange(0, 1), help="The part of the delay that is random."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the client names them."""
    policy = _policy({name: options.pop(f"retry_{name}") for name in ("base", "factor", "max", "jitter")})
    given = {name: value for name, value in options.items() if value is not None}
    if "partitions" in given:
        given["requested_partitions"] = given.pop("partitions")
    if policy is not None:
        given["retry_policy"] = policy
    return given


def _policy(options: dict[str, Any]) -> RetryPolicy | None:
    from querator.client_items import RetryPolicy

    return None if all(value is None for value in options.values()) else RetryPolicy(**options)


def _report(session: Session, queue_name: str, what: str) -> None:
    if session.is_json:
        write_json({"queue_name": queue_name, "done": what})
    else:
        say(f"queue '{queue_name}' {what}")


@click.command(
    epilog=examples("querator create mail --partitions 4 --lease-timeout 1m --max-attempts 5 --dead-queue mail-dead")
)
@queue_argument
@_settings
@session_options
@pass_session
def create(session: Session, /, queue_name: str, **options: Any) -> None:
    """Create a queue."""
    given = _given(options)
    session.run(lambda client: client.create_queue(queue_name, **given))
    _report(session, queue_name, "created")


@click.command(epilog=examples("querator update mail --lease-timeout 5m"))
@queue_argument
@_settings
@session_options
@pass_session
def update(session: Session, /, queue_name: str, **options: Any) -> None:
    """Change a queue's settings. What is not named stays as it is."""
    given = _given(options)
    if not given:
        raise click.UsageError("name at least one setting to change")
    session.run(lambda client: client.update_queue(queue_name, **given))
    _report(session, queue_name, "updated")


@click.command(epilog=examples("querator delete mail --force"))
@queue_argument
@click.option("--force", is_flag=True, help="Also if it holds items.")
@session_options
@pass_session
def delete(session: Session, queue_name: str, force: bool) -> None:
    """Delete a queue and its data."""
    session.run(lambda client: client.delete_queue(queue_name, force=force))
    _report(session, queue_name, "deleted")


@click.command("list", epilog=examples("querator list", "querator list --json | jq -r '.[].queue_name'"))
@click.option("--namespace", default="", help="Only the queues of this namespace.")
@session_options
@pass_session
def list_(session: Session, namespace: str) -> None:
    """List the queues."""

    async def ask(client: Client) -> list[wire.QueueInfo]:
        return [queue async for queue in client.iter_queues(namespace=namespace)]

    queues = session.run(ask)
    if session.is_json:
        write_json(queues)
        return
    columns = ("queue", "partitions", "lease", "expire", "attempts", "dead queue", "paused")
    write_rows(columns, [_row(queue) for queue in queues])
    if is_terminal() and not queues:
        say("There are none yet; `querator create NAME` makes one.")


def _row(queue: wire.QueueInfo) -> tuple[object, ...]:
    return (
        queue.queue_name,
        queue.requested_partitions,
        show_age(queue.lease_timeout),
        show_limit(queue.expire_timeout),
        queue.max_attempts or "no limit",
        queue.dead_queue or "-",
        _paused(queue),
    )


def _paused(queue: wire.QueueInfo) -> str:
    ways = (("produce", queue.produce_paused), ("reserve", queue.reserve_paused))
    return ", ".join(name for name, is_paused in ways if is_paused) or "-"


@click.command(epilog=examples("querator info mail"))
@queue_argument
@session_options
@pass_session
def info(session: Session, queue_name: str) -> None:
    """Show a queue's settings and partitions."""
    queue = session.run(lambda client: client.queue_info(queue_name))
    if session.is_json:
        write_json(queue)
        return
    write_pairs(_pairs(queue))
    if is_terminal():
        columns = ("partition", "backend", "instance", "state", "epoch", "ready", "leased", "scheduled")
        write_rows(columns, [[getattr(one, name) for name in columns] for one in queue.partitions])
    if queue.partial:
        note_partial(queue.missing)


def _pairs(queue: wire.QueueInfo) -> list[tuple[str, object]]:
    policy = queue.retry_policy
    retry = "at once"
    if isinstance(policy, wire.RetryPolicyInfo) and policy.base not in {"", "0s"}:
        retry = f"after {policy.base} × {policy.factor:g}^n, at most {policy.max}, jitter {policy.jitter:g}"
    return [
        ("queue", queue.queue_name),
        ("partitions", queue.requested_partitions),
        ("logical queues", queue.logical_queues or "auto"),
        ("lease timeout", show_age(queue.lease_timeout)),
        ("expire timeout", show_limit(queue.expire_timeout)),
        ("max attempts", queue.max_attempts or "no limit"),
        ("dead queue", queue.dead_queue or "-"),
        ("retry", retry),
        ("paused", _paused(queue)),
        ("reference", queue.reference or "-"),
        ("namespace", queue.namespace or "-"),
        ("created at", show_instant(queue.created_at)),
        ("updated at", show_instant(queue.updated_at)),
    ]


@click.command(epilog=examples("querator clear mail --yes"))
@queue_argument
@click.option("--scheduled", is_flag=True, help="Also scheduled items.")
@click.option("--only-scheduled", is_flag=True, help="Scheduled items, and no others.")
@click.option("--destructive", is_flag=True, help="Also items under lease.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@session_options
@pass_session
def clear(
    session: Session, /, queue_name: str, scheduled: bool, only_scheduled: bool, destructive: bool, yes: bool
) -> None:
    """Remove a queue's items: those that are ready, unless told otherwise."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here; say --yes")
        if not click.confirm(f"Remove items of '{queue_name}' for good?", err=True):
            raise click.ClickException("nothing was removed")
    session.run(
        lambda client: client.clear(
            queue_name,
            queue=not only_scheduled,
            scheduled=scheduled or only_scheduled,
            destructive=destructive,
        )
    )
    _report(session, queue_name, "cleared")


def _ways(command: F) -> F:
    command = click.option("--reserve", is_flag=True, help="Only reserves.")(command)
    return click.option("--produce", is_flag=True, help="Only produces.")(command)


@click.command(epilog=examples("querator pause mail --reserve"))
@queue_argument
@_ways
@session_options
@pass_session
def pause(session: Session, queue_name: str, produce: bool, reserve: bool) -> None:
    """Stop produces and reserves of a queue, or one of the two."""
    session.run(lambda client: client.pause(queue_name, produce=produce, reserve=reserve))
    _report(session, queue_name, "paused")


@click.command(epilog=examples("querator resume mail"))
@queue_argument
@_ways
@session_options
@pass_session
def resume(session: Session, queue_name: str, produce: bool, reserve: bool) -> None:
    """Undo a pause."""
    session.run(lambda client: client.resume(queue_name, produce=produce, reserve=reserve))
    _report(session, queue_name, "resumed")
