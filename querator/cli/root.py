"""The list of commands. Each is imported when it is used, so that help and completion are quick."""

from __future__ import annotations

from importlib import import_module

import click

from querator.cli.session import examples, session_options

# Name → module, attribute, and the line of the overview.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("querator.cli.server", "serve", "Run a server."),
    "config": ("querator.cli.config", "config", "Check the configuration, or show what is in force."),
    "create": ("querator.cli.queues", "create", "Create a queue."),
    "update": ("querator.cli.queues", "update", "Change a queue's settings."),
    "delete": ("querator.cli.queues", "delete", "Delete a queue and its data."),
    "list": ("querator.cli.queues", "list_", "List the queues."),
    "info": ("querator.cli.queues", "info", "Show a queue's settings and partitions."),
    "produce": ("querator.cli.produce", "produce", "Put items into a queue."),
    "reserve": ("querator.cli.reserve", "reserve", "Take items out, under lease."),
    "complete": ("querator.cli.leases", "complete", "Tell that reserved items are done."),
    "retry": ("querator.cli.leases", "retry", "Give reserved items back."),
    "renew": ("querator.cli.leases", "renew", "Extend the lease of reserved items."),
    "stats": ("querator.cli.stats", "stats", "Show what a queue holds."),
    "clear": ("querator.cli.queues", "clear", "Remove a queue's items."),
    "pause": ("querator.cli.queues", "pause", "Stop produces or reserves of a queue."),
    "resume": ("querator.cli.queues", "resume", "Undo a pause."),
    "items": ("querator.cli.items", "items", "Look into partitions, and write to them."),
    "cluster": ("querator.cli.cluster", "cluster", "Look at the cluster: its instances, and who owns what."),
    "health": ("querator.cli.server", "health", "Ask a server how it is."),
    "bench": ("bench.command", "bench", "Measure a server."),
    "completion": ("querator.cli.server", "completion", "Print a shell's completion script."),
    "version": ("querator.cli.server", "version", "Print the version."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if cmd_name != "bench":
                raise
            return _missing_bench(error.name or "bench")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


def _missing_bench(module: str) -> click.Command:
    def fail() -> None:
        raise click.ClickException(
            f"'{module}' is not installed; the benchmark runs from a checkout of the sources: "
            "run `make test` there, then `querator bench`"
        )

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command("bench", callback=fail, context_settings=settings, add_help_option=False)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "querator serve",
        "querator create mail",
        'querator produce mail "hello"',
        "querator reserve mail --complete",
    ),
)
@session_options
def root() -> None:
    """Querator: a queue for work that must be done once."""
