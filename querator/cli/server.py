"""The commands about servers, and about this program itself."""

from __future__ import annotations

from pathlib import Path

import click

from querator.cli.output import write_json, write_pairs
from querator.cli.session import Session, examples, pass_session, session_options
from querator.version import VERSION


@click.command(
    epilog=examples(
        "querator serve",
        "querator serve --listen 127.0.0.1:2319 --data-dir ./data",
        "querator serve --config querator.yaml --log-format json",
        "querator serve --workers 4",
    )
)
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="The configuration, in YAML.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Where to listen; may be repeated.")
@click.option("--grpc-listen", metavar="HOST:PORT", help="Where to offer gRPC; `none`: nowhere.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="Where the data is kept. Default: ./data")
@click.option("--workers", type=int, metavar="N", help="How many instances share the work on this host. Default: 1")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="Default: console")
@click.pass_context
def serve(
    ctx: click.Context,
    path: Path | None,
    listen: tuple[str, ...],
    grpc_listen: str | None,
    data_dir: str | None,
    workers: int | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run a server until SIGINT or SIGTERM."""
    try:
        from querator import daemon
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the server is not installed here ('{error.name}' is missing); install `querator-server`"
        ) from None
    overrides = {
        "listen": list(listen) or None,
        "grpc_listen": grpc_listen,
        "data_dir": data_dir,
        "workers": workers,
        "log.level": log_level,
        "log.format": log_format,
    }
    ctx.exit(daemon.serve(lambda: daemon.read_config(path, overrides)))


@click.command(epilog=examples("querator health", "querator health --url http://127.0.0.1:2319 --json"))
@session_options
@pass_session
@click.pass_context
def health(ctx: click.Context, session: Session) -> None:
    """Ask a server how it is. The exit code is 0 if it is well, else 1."""
    report = session.run(lambda client: client.health())
    if session.is_json:
        write_json(report)
    else:
        checks = [
            (name, f"{one.status}{f': {one.output}' if one.output else ''}")
            for name, all_ in report.checks.items()
            for one in all_
        ]
        write_pairs([("status", report.status), *checks])
    ctx.exit(0 if report.status in {"pass", "warn"} else 1)


@click.command(
    epilog=examples(
        'eval "$(querator completion bash)"', "querator completion fish > ~/.config/fish/completions/querator.fish"
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "querator", "_QUERATOR_COMPLETE").source())


@click.command(epilog=examples("querator version"))
@session_options
@pass_session
def version(session: Session) -> None:
    """Print the version."""
    if session.is_json:
        write_json({"version": VERSION})
    else:
        click.echo(VERSION)
