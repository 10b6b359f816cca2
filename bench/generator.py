"""Generator processes: started apart from the bench, so that loading a target costs its measurer nothing.

The bench and a generator speak over a pipe: "ready" when connected, then the window, then the measurement or an error.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import uvloop

from bench.limits import BareLoop, BlocksLoop, RowsLoop
from bench.load import ClosedLoop
from bench.measure import Counts, Driver, Load, Measurement, Sampler, Window
from bench.open_loop import OpenLoop

_CONNECT_PATIENCE_S = 120.0
_LEAD_S = 0.05  # for the window to reach every process before it starts


class Timing(NamedTuple):
    """How long a round takes, in seconds."""

    warm_up: float
    measured: float


class GeneratorFailed(Exception):
    """A generator process could not do its work; the message says why."""


def _postgres(load: Load) -> Driver:
    # Imported here, since asyncpg is only there where the peers are compared.
    from bench.peers_postgres import PostgresCycle

    return PostgresCycle(load)


def _postgres_commits(load: Load) -> Driver:
    from bench.limits_postgres import CommitLane, PostgresLimit

    return PostgresLimit(load, CommitLane)


def _postgres_rows(load: Load) -> Driver:
    from bench.limits_postgres import PostgresLimit, RowLane

    return PostgresLimit(load, RowLane)


def _beanstalkd(load: Load) -> Driver:
    from bench.peers_beanstalkd import BeanstalkdCycle

    return BeanstalkdCycle(load)


def _querator(load: Load) -> Driver:
    return OpenLoop(load) if load.workload == "open" else ClosedLoop(load)


_DRIVERS: dict[str, Callable[[Load], Driver]] = {
    "querator": _querator,
    "sqlite rows": lambda load: BareLoop(load, RowsLoop),
    "sqlite blocks": lambda load: BareLoop(load, BlocksLoop),
    "postgres": _postgres,
    "postgres commits": _postgres_commits,
    "postgres rows": _postgres_rows,
    "beanstalkd": _beanstalkd,
}


async def _drive(load: Load, pipe: Connection) -> Measurement:
    driver = _DRIVERS[load.target](load)
    await driver.connect()
    try:
        pipe.send("ready")
        window: Window = pipe.recv()
        counts = Counts()
        sampler = Sampler(load, window, counts)
        sampler.start()
        try:
            await driver.run(window, counts)
        finally:
            measurement = sampler.finish()
    finally:
        await driver.close()
    return measurement


def _main(load: Load, pipe: Connection) -> None:
    """The whole life of a generator process."""
    try:
        pipe.send(uvloop.run(_drive(load, pipe)))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
        pipe.send(GeneratorFailed(f"{load.target}, {load.workload}: {type(error).__name__}: {error}"))


def _receive(pipe: Connection, patience: float | None) -> object:
    if not pipe.poll(patience):
        raise GeneratorFailed(f"a generator process said nothing for {patience:g} s")
    try:
        said: object = pipe.recv()
    except EOFError:
        raise GeneratorFailed("a generator process ended without a word") from None
    if isinstance(said, GeneratorFailed):
        raise said
    return said


def generate(loads: Sequence[Load], timing: Timing) -> list[Measurement]:
    """Run the loads side by side, each in a process of its own, over one window."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    try:
        for load in loads:
            ours, theirs = context.Pipe()
            process = context.Process(target=_main, args=(load, theirs))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        for pipe in pipes:
            _receive(pipe, _CONNECT_PATIENCE_S)
        start = time.monotonic() + _LEAD_S
        window = Window(start, start + timing.warm_up, start + timing.warm_up + timing.measured)
        for pipe in pipes:
            pipe.send(window)
        measurements = [_receive(pipe, None) for pipe in pipes]
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.join()
    return [measurement for measurement in measurements if isinstance(measurement, Measurement)]
