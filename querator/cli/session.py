"""What every command shares: which server, which form of output, how much time; and the types of its arguments.

Imports late what help and completion do not need.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from querator.errors import QueratorError

if TYPE_CHECKING:
    from querator.client import Client

DEFAULT_URL = "http://127.0.0.1:2319"
DEFAULT_TIMEOUT = "30s"

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """The global options, wherever on the command line they stood."""

    def __init__(self) -> None:
        self.urls: tuple[str, ...] = ()
        self.is_json = False
        self.timeout = DEFAULT_TIMEOUT

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.urls or tuple(os.environ.get("QUERATOR_URL", "").split()) or (DEFAULT_URL,)

    def run(self, work: Callable[[Client], Awaitable[R]]) -> R:
        """Do work that needs a client."""
        import asyncio

        from querator.client import Client

        async def with_client() -> R:
            async with Client(*self.addresses, timeout=self.timeout) as client:
                return await work(client)

        return asyncio.run(with_client())


pass_session = click.make_pass_decorator(Session, ensure=True)


class DurationType(click.ParamType[str]):
    """A length of time such as 500ms, 90s or 1m30s, kept as text."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from querator.durations import parse_duration

        try:
            parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


class InstantType(click.ParamType[datetime]):
    """An instant such as 2030-01-31T08:00:00Z."""

    name = "instant"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        from querator.durations import parse_instant, to_instant

        try:
            return to_instant(parse_instant(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = DurationType()
INSTANT = InstantType()


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(Session), name, value)
        return value

    return keep


def session_options(command: F) -> F:
    """The global options, which may stand before and after a command's name."""
    options = (
        click.option(
            "--url",
            multiple=True,
            metavar="URL",
            callback=_keep("urls"),
            expose_value=False,
            help=f"The server, or several instances. Also QUERATOR_URL. Default: {DEFAULT_URL}",
        ),
        click.option(
            "--json",
            is_flag=True,
            callback=_keep("is_json"),
            expose_value=False,
            help="Write JSON: one document, or a line for each of many.",
        ),
        click.option(
            "--timeout",
            type=DURATION,
            callback=_keep("timeout"),
            expose_value=False,
            help=f"What a call may take, with all its attempts. Default: {DEFAULT_TIMEOUT}",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def examples(*lines: str) -> str:
    """The end of a command's help: lines to type, as they are."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(("\b", heading, *(f"  {line}" for line in lines)))


def complete_queue_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The names of queues, for the shell; none if the server does not answer soon."""
    session = ctx.ensure_object(Session)
    session.timeout = "1s"

    async def names(client: Client) -> list[str]:
        return [queue.queue_name for queue in await client.list_queues(limit=1000)]

    try:
        return [name for name in session.run(names) if name.startswith(incomplete)]
    except (QueratorError, ValueError):
        return []


queue_argument = click.argument("queue_name", metavar="QUEUE", shell_complete=complete_queue_name)
