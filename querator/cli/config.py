"""The commands about the configuration: is it right, what is in force, and where does each value come from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from querator.cli.output import note, say, write_json, write_rows
from querator.cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from querator.config_sources import Reading

_FILE = click.Path(path_type=Path, dir_okay=False)

_SECRET_NAME = re.compile(r"passw|secret|token|credential", re.IGNORECASE)
_MASK = "***"
_IN_URL = re.compile(r"(?<=://)([^/@\s:]*):([^/\s]*)@")
_IN_DSN = re.compile(r"\b(password|passfile|sslpassword)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


class _Shown(NamedTuple):
    option: str
    value: Any
    source: str


@click.group(epilog=examples("querator config check querator.yaml", "querator config show"))
def config() -> None:
    """Check the configuration, or show what is in force."""


@config.command(epilog=examples("querator config check querator.yaml", "querator config check --json"))
@click.argument("file", type=_FILE, required=False)
@session_options
@pass_session
@click.pass_context
def check(ctx: click.Context, session: Session, file: Path | None) -> None:
    """Look for mistakes in FILE and in the environment, as a server would at its start.

    Every mistake is a line that names its place. The exit code is 0 if there are none, else 1.
    """
    mistakes = _read(file, {}).mistakes
    if session.is_json:
        write_json({"mistakes": [mistake._asdict() for mistake in mistakes]})
    else:
        for mistake in mistakes:
            click.secho(mask_text(str(mistake)), fg="red")
        if not mistakes:
            say("the configuration is right")
    ctx.exit(1 if mistakes else 0)


@config.command(epilog=examples("querator config show", "querator config show --config querator.yaml --json"))
@click.option("--config", "file", type=_FILE, help="The configuration, in YAML.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="As of `querator serve`.")
@click.option("--grpc-listen", metavar="HOST:PORT", help="As of `querator serve`.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="As of `querator serve`.")
@click.option("--workers", type=int, metavar="N", help="As of `querator serve`.")
@click.option("--log-level", help="As of `querator serve`.")
@click.option("--log-format", help="As of `querator serve`.")
@session_options
@pass_session
@click.pass_context
def show(
    ctx: click.Context,
    session: Session,
    file: Path | None,
    listen: tuple[str, ...],
    grpc_listen: str | None,
    data_dir: str | None,
    workers: int | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Show every option with its value, and where that comes from: default, a line of the file, a variable, a flag.

    Passwords are masked.
    """
    from querator.config import option_name
    from querator.config_sources import options

    flags = {"grpc_listen": grpc_listen, "data_dir": data_dir, "workers": workers}
    logs = {"log.level": log_level, "log.format": log_format}
    reading = _read(file, {"listen": list(listen) or None, **flags, **logs})
    shown = [
        _Shown(option_name(path), mask(str(path[-1]), value), reading.source(path))
        for path, value in options(reading.config)
    ]
    if session.is_json:
        write_json({"options": [one._asdict() for one in shown]})
    else:
        write_rows(("option", "value", "source"), [(one.option, _plain(one.value), one.source) for one in shown])
    for mistake in reading.mistakes:
        note(mask_text(str(mistake)))
    ctx.exit(1 if reading.mistakes else 0)


def _read(file: Path | None, overrides: Mapping[str, Any]) -> Reading:
    try:
        from querator import daemon
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the server is not installed here ('{error.name}' is missing); install `querator-server`"
        ) from None
    return daemon.read_config(file, overrides)


def mask(name: str, value: Any) -> Any:
    """A value that may be shown: without passwords."""
    if value and _SECRET_NAME.search(name):
        return _MASK
    return mask_text(value) if isinstance(value, str) else value


def mask_text(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    return _IN_DSN.sub(rf"\1\2{_MASK}", _IN_URL.sub(rf"\1:{_MASK}@", text))


def _plain(value: Any) -> str:
    """As YAML would have it, near enough for a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return '""' if value == "" else str(value)
