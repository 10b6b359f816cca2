"""The daemon: puts the program together, runs it until it is told to stop, and takes it apart again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO

import structlog
import uvloop

from api.server import Server
from cluster.catalog import Catalog
from cluster.coordinator import CoordinationError
from cluster.host import Host
from cluster.one_host import OneHostCoordinator
from cluster.router import Router
from querator.clock import SystemClock
from querator.config import Config, LogConfig
from querator.errors import InvalidRequest, QueratorError, RequestFailed
from querator.version import VERSION
from querator.waist import Backend, StorageError
from storage.drivers import open_backend

_log = structlog.get_logger(__name__)

_FIXED = ("listen", "data_dir", "storage", "fast_door", "limits", "telemetry")  # options that need a restart
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Instance:
    """One running server: `start`, then `stop`. What was begun is undone in the reverse order."""

    def __init__(self, config: Config, read_again: Callable[[], Config] | None = None) -> None:
        self._config = config
        self._read_again = read_again
        self._started = AsyncExitStack()
        self._router: Router
        self._server: Server

    async def start(self) -> list[tuple[str, int]]:
        """Returns the addresses it listens on."""
        try:
            return await self._start()
        except BaseException:
            await self._started.aclose()
            raise

    async def _start(self) -> list[tuple[str, int]]:
        config = self._config
        data_dir = Path(config.data_dir)
        self._started.enter_context(_lock(data_dir))
        backends = await self._open_backends(data_dir)
        coordinator = await OneHostCoordinator.open(data_dir / "cluster.db")
        self._started.push_async_callback(coordinator.close)
        host = Host(
            catalog=Catalog(coordinator),
            backends=backends,
            clock=SystemClock(),
            rng=random.Random(os.urandom(16)),  # noqa: S311 - jitter, not secrets
            limits=config.limits,
        )
        self._started.push_async_callback(host.close)
        await host.start()
        self._router = Router(host, config.limits)
        await self._create_queues(config)
        self._server = server = Server(
            router=self._router,
            limits=config.limits,
            reload_config=self.reload,
            fast_door=config.fast_door,
            log_requests=config.log.level == "debug",
        )
        self._started.push_async_callback(server.stop)
        return await server.start(config.addresses())

    async def _open_backends(self, data_dir: Path) -> dict[str, Backend]:
        backends: dict[str, Backend] = {}
        for each in self._config.storage:
            backend = await open_backend(
                name=each.name, driver=each.driver, affinity=each.affinity, options=each.options, data_dir=data_dir
            )
            self._started.push_async_callback(backend.close)
            backends[each.name] = backend
        return backends

    async def _create_queues(self, config: Config) -> list[str]:
        """Make the queues that are declared and not there; returns their names."""
        there = {queue.name for queue in await self._router.list_queues("", sys.maxsize, "")}
        missing = [declared for declared in config.queues if declared.queue_name not in there]
        missing.sort(key=lambda declared: declared.dead_queue != "")  # what may be a dead queue comes first
        for declared in missing:
            await self._router.create_queue(declared.settings())
        return [declared.queue_name for declared in missing]

    async def reload(self) -> list[str]:
        """Read the configuration again; returns what changed. What needs a restart is refused: then nothing changes."""
        if self._read_again is None:
            raise RequestFailed("configuration cannot be reloaded", "it was not read from anywhere")
        config = self._read_again()
        fixed = [option for option in _FIXED if getattr(config, option) != getattr(self._config, option)]
        if fixed:
            raise InvalidRequest(
                "configuration cannot be changed while running", f"restart to change {', '.join(fixed)}"
            )
        changes = [f"queue '{name}' was created" for name in await self._create_queues(config)]
        if config.log != self._config.log:
            set_up_logging(config.log)
            self._server.log_requests(config.log.level == "debug")
            changes.append(f"log is {config.log.format} from {config.log.level} on")
        self._config = config
        _log.info("configuration reloaded", changes=changes)
        return changes

    async def stop(self) -> None:
        """Answer what waits, finish what runs, make everything durable. May be called twice."""
        await self._started.aclose()


def _lock(data_dir: Path) -> IO[bytes]:
    """Hold the data folder for this process alone."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        file = (data_dir / "lock").open("wb")
    except OSError as error:
        raise RequestFailed("data folder cannot be used", f"{data_dir}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RequestFailed("data folder is in use", f"another server runs on {data_dir}") from None
    return file


def serve(read: Callable[[], Config]) -> int:
    """Run until SIGINT or SIGTERM; SIGHUP reads the configuration again. Returns the exit code."""
    config = read()
    set_up_logging(config.log)
    return uvloop.run(_serve(config, read))


async def _serve(config: Config, read_again: Callable[[], Config]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    instance = Instance(config, read_again)
    try:
        addresses = await instance.start()
    except (QueratorError, StorageError, CoordinationError, OSError) as error:
        _log.error("cannot start", reason=str(error))
        return 1
    urls = [f"http://{f'[{host}]' if ':' in host else host}:{port}" for host, port in addresses]
    for url in urls:
        _log.info("listening", url=url, version=VERSION)
    _log.info(f"""try: curl --json '{{"queue_name": "mail"}}' {urls[0]}/v1/queues.create""")
    reloads: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(loop.create_task(_reload(instance))))
    await stop.wait()
    _log.info("stopping")
    await instance.stop()
    _log.info("stopped")
    return 0


async def _reload(instance: Instance) -> None:
    try:
        await instance.reload()
    except QueratorError as error:
        _log.error("configuration was not reloaded", reason=error.message)


def set_up_logging(config: LogConfig) -> None:
    """One event a line on standard error, for people or for programs."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if config.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
