"""``querator bench``: measure a server, beside the limits of its disk and beside its peers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.backlog import run_backlog
from bench.bloat import run_bloat
from bench.environment import RESULTS, work_folder
from bench.generator import GeneratorFailed, Timing
from bench.load import CallFailed
from bench.proc import file_system
from bench.profile import profile_case
from bench.report import Report, show, write_json
from bench.rounds import Case, ItemsLost, OnRound, Plan, TooShort
from bench.suite import Setting, run_cases, run_latency, run_parts, run_suite
from bench.suite_cluster import run_cluster
from bench.suite_postgres import BATCHES, CLIENTS, run_postgres

_DISK = Path("/var/tmp")  # outlives a reboot by convention, so it is on a disk; passable for every user
_LOG_WIDTH = 130
_FAILURES = (
    GeneratorFailed,
    CallFailed,
    ItemsLost,
    TooShort,
    FileNotFoundError,
    RuntimeError,
    TimeoutError,
    ConnectionError,
)


class _Numbers(click.ParamType[list[int]]):
    """Whole numbers with commas between: 1,10,100."""

    name = "numbers"

    def convert(self, value: str | list[int], param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if not isinstance(value, str):
            return value
        try:
            numbers = [int(float(part)) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 1,10,100", param, ctx)
        if min(numbers) < 1:
            self.fail("each number must be at least 1", param, ctx)
        return numbers


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What stands before the name of a preset and holds for all of them."""

    console: Console
    plan: Plan
    quick: bool
    driver: str
    url: str | None
    with_peers: bool
    with_limits: bool
    disk: Path
    json_file: Path | None
    plot_file: Path | None

    @contextmanager
    def setting(self) -> Iterator[Setting]:
        if file_system(self.disk) == "tmpfs":
            self.console.print(f"[yellow]{self.disk} is in memory: fsync costs nothing there, and figures mean nothing")
        with work_folder(self.disk) as folder, self._progress() as on_round:
            yield Setting(
                folder=folder,
                plan=self.plan,
                on_round=on_round,
                on_missing=lambda text: self.console.print(f"[yellow]{text}"),
                driver=self.driver,
                url=self.url,
                with_peers=self.with_peers,
                with_limits=self.with_limits,
            )

    @contextmanager
    def _progress(self) -> Iterator[OnRound]:
        """What runs now, on a terminal only."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        shown = self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=not shown) as progress:
            task = progress.add_task("start")
            yield lambda text: progress.update(task, description=text)

    def finish(self, report: Report) -> None:
        show(self.console, report)
        json_file = self.json_file or RESULTS / report.file_name("json")
        plot_file = self.plot_file or RESULTS / report.file_name("png")
        write_json(report, json_file)
        # Imported last: matplotlib takes a second, and a failed run needs no picture.
        from bench.plot import write_plot

        write_plot(report, plot_file)
        self.console.print(f"[dim]written: {json_file}, {plot_file}[/dim]")


def _console() -> Console:
    """As wide as the terminal; wide enough for the tables where there is none, as in a log."""
    console = Console()
    return console if console.is_terminal else Console(width=_LOG_WIDTH)


def _run(options: _Options, make: Callable[[Setting], Report]) -> None:
    try:
        with options.setting() as setting:
            report = make(setting)
    except _FAILURES as error:
        raise click.ClickException(str(error)) from error
    options.finish(report)


@click.group(invoke_without_command=True)
@click.option("--driver", type=click.Choice(["sqlite", "memory", "postgres"]), default="sqlite", show_default=True)
@click.option("--url", help="Measure the server that runs there, instead of starting one.")
@click.option(
    "--duration", type=click.FloatRange(0.1), default=4.0, show_default=True, help="Seconds measured a round."
)
@click.option("--warm-up", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds before that.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--quick", is_flag=True, help="Three short rounds: to see that it works, not to quote.")
@click.option("--peers/--no-peers", default=None, help="Compare with PostgreSQL and beanstalkd. On in the suite.")
@click.option("--limits/--no-limits", default=None, help="Compare with bare loops on SQLite. On in the suite.")
@click.option("--disk", type=click.Path(path_type=Path, exists=True), default=_DISK, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Default: a new file in bench/results.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Default: a new file in bench/results.")
@click.pass_context
def bench(
    context: click.Context,
    *,
    driver: str,
    url: str | None,
    duration: float,
    warm_up: float,
    rounds: int,
    quick: bool,
    peers: bool | None,
    limits: bool | None,
    disk: Path,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Measure Querator over HTTP, beside bare loops on the same disk and beside its peers.

    Without a preset, the suite runs. Options for all presets stand before the preset's name:
    querator bench --rounds 9 suite
    """
    in_suite = context.invoked_subcommand in {None, "suite"}
    plan = Plan(rounds=3, timing=Timing(0.5, 1.5)) if quick else Plan(rounds=rounds, timing=Timing(warm_up, duration))
    options = _Options(
        console=_console(),
        plan=plan,
        quick=quick,
        driver=driver,
        url=url,
        with_peers=in_suite if peers is None else peers,
        with_limits=in_suite if limits is None else limits,
        disk=disk,
        json_file=json_file,
        plot_file=plot_file,
    )
    context.obj = options
    if context.invoked_subcommand is None:
        _run(options, run_suite)


@bench.command()
@click.pass_obj
def suite(options: _Options) -> None:
    """What the project holds itself to: ratios to the bare loops and to the peers."""
    _run(options, run_suite)


@bench.command()
@click.option("--workload", type=click.Choice(["cycle", "produce"]), default="cycle", show_default=True)
@click.option("--batches", type=_Numbers(), default="1,10,100,1000", show_default=True, help="Items per request.")
@click.option("--clients", type=_Numbers(), default="1,8,64", show_default=True)
@click.option("--partitions", type=_Numbers(), default="1", show_default=True)
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="That generate the load.")
@click.option("--check", is_flag=True, help="Number every item, and check that each arrives exactly once. Slower.")
@click.pass_obj
def cases(
    options: _Options,
    *,
    workload: str,
    batches: list[int],
    clients: list[int],
    partitions: list[int],
    processes: int,
    check: bool,
) -> None:
    """Every combination of batches, clients and partitions."""
    wanted = [
        Case(workload=workload, batch=batch, clients=many, partitions=parts, processes=processes, numbered=check)
        for parts, batch, many in itertools.product(partitions, batches, clients)
    ]
    _run(options, lambda setting: run_cases(setting, wanted))


@bench.command()
@click.pass_obj
def parts(options: _Options) -> None:
    """What the fast door and the blocks each bring: the same server without one of them."""
    _run(options, run_parts)


@bench.command()
@click.option(
    "--sizes", type=_Numbers(), default="1e4,1e7", show_default=True, help="Whole thousands of items waiting."
)
@click.option("--batch", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--clients", type=click.IntRange(1), default=8, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.pass_obj
def backlog(options: _Options, *, sizes: list[int], batch: int, clients: int, partitions: int) -> None:
    """The same work with few and with very many items waiting: calls, memory, and opening after kill -9."""
    if len(sizes) < 2 or any(size % 1000 for size in sizes):
        raise click.BadParameter("at least two, each in whole thousands", param_hint="--sizes")
    case = Case(batch=batch, clients=clients, partitions=partitions)
    _run(options, lambda setting: run_backlog(setting, sizes, case))


@bench.command()
@click.option(
    "--partitions", type=_Numbers(), default="1,4", show_default=True, help="Of our queue, at batches of 100 and 1000."
)
@click.option("--connections", type=click.IntRange(1), default=8, show_default=True, help="Of each bare loop.")
@click.pass_obj
def postgres(options: _Options, *, partitions: list[int], connections: int) -> None:
    """On one PostgreSQL: our server, SKIP LOCKED, our commit function in a bare loop, and a row per item."""
    if len(partitions) != len(BATCHES):
        raise click.BadParameter("one number for each size of batch, such as 1,4", param_hint="--partitions")
    _run(options, lambda setting: run_postgres(setting, partitions, connections))


@bench.command()
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="That it is held.")
@click.option("--windows", type=click.IntRange(2), default=12, show_default=True, help="Rows of the table for these.")
@click.option("--batch", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True)
@click.pass_obj
def bloat(options: _Options, *, seconds: float, windows: int, batch: int, partitions: int) -> None:
    """On PostgreSQL with a snapshot that somebody holds open: rate and sizes before it, with it and after it."""
    case = Case(batch=batch, clients=CLIENTS, partitions=partitions)
    _run(options, lambda setting: run_bloat(setting, seconds, windows, case))


@bench.command()
@click.pass_obj
def cluster(options: _Options) -> None:
    """Single items, 64 clients: two workers against one, and calls to the owner against calls through the other."""
    _run(options, run_cluster)


@bench.command()
@click.option("--rates", type=_Numbers(), default="200,500,1000,2000", show_default=True, help="Cycles per second.")
@click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--clients", type=click.IntRange(1), default=64, show_default=True, help="Connections at most in use.")
@click.pass_obj
def latency(options: _Options, *, rates: list[int], batch: int, clients: int) -> None:
    """Open loop: how long produce and the whole cycle take from when they should have started."""
    _run(options, lambda setting: run_latency(setting, rates, batch, clients))


@bench.command()
@click.option("--workload", type=click.Choice(["cycle", "produce"]), default="cycle", show_default=True)
@click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--clients", type=click.IntRange(1), default=64, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option("--native", is_flag=True, help="Also see into C extensions.")
@click.option("--idle", is_flag=True, help="Also count threads that wait, for example for the disk.")
@click.option("--top", type=click.IntRange(1), default=30, show_default=True, help="Functions in the table.")
@click.pass_obj
def profile(
    options: _Options, *, workload: str, batch: int, clients: int, partitions: int, native: bool, idle: bool, top: int
) -> None:
    """Sample the server with py-spy under one workload: a flame graph, and a table of where the time goes."""
    case = Case(workload=workload, batch=batch, clients=clients, partitions=partitions)
    try:
        with options.setting() as setting:
            result = profile_case(setting, case, native=native, idle=idle)
    except _FAILURES as error:
        raise click.ClickException(str(error)) from error
    options.console.print(result.table(top))
    options.console.print(f"[dim]written: {result.raw}, {result.flame_graph}[/dim]")
