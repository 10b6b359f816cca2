"""The daemon: puts the program together, runs it until it is told to stop, and takes it apart again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any

import structlog
import uvloop

from api.server import Server
from cluster import coordination
from cluster.channel import Link
from cluster.claims import SHARED, claim_backend, home_of
from cluster.coordination import open_coordinator
from cluster.coordinator import CoordinationError, Coordinator
from cluster.membership import Member
from cluster.participant import Participant
from cluster.reconfigure import fixed_problems, missing_queues, reconfigure
from cluster.settings import find_mistakes
from querator.clock import SystemClock, sleep_ms
from querator.config import INVALID, BackendConfig, Config, LogConfig, Problem, is_everywhere
from querator.config_sources import Reading, read
from querator.errors import Conflict, QueratorError, RequestFailed, RetryRequest, Stopping
from querator.observer import Observer
from querator.supervisor import SIGNALS, Seat, Supervisor
from querator.telemetry import Telemetry, set_up_telemetry
from querator.version import VERSION
from querator.waist import Backend, StorageError
from storage import drivers
from storage.drivers import open_backend

_log = structlog.get_logger(__name__)

_PAUSE_FIRST_MS = 200  # before declared queues that had to wait are tried again
_PAUSE_LAST_MS = 30_000
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Instance:
    """One running server: `start`, then `stop`. What was begun is undone in the reverse order.

    With a ``seat`` it is one of several on this host, whose supervisor holds the data folder.
    """

    def __init__(
        self, config: Config, read_again: Callable[[], Reading] | None = None, seat: Seat | None = None
    ) -> None:
        self._config = config
        self._read_again = read_again
        self._seat = seat
        self._started = AsyncExitStack()
        self._changing = asyncio.Lock()  # held by a reload, and by the stop
        self._stopping = False
        self._backends: dict[str, Backend] = {}
        self._clock = SystemClock()
        self._me = secrets.token_hex(8)
        self._host = config.cluster.host or socket.gethostname()
        self._coordinator: Coordinator
        self._participant: Participant
        self._server: Server

    async def start(self) -> list[tuple[str, int]]:
        """Returns the addresses it listens on."""
        async with self._changing:
            try:
                return await self._start()
            except BaseException:
                self._stopping = True
                await self._started.aclose()
                raise

    async def _start(self) -> list[tuple[str, int]]:
        config = self._config
        data_dir = Path(config.data_dir)
        if self._seat is None:
            self._started.enter_context(lock(data_dir))
        self._coordinator = await open_coordinator(config.cluster, data_dir)
        self._started.push_async_callback(self._coordinator.close)
        self._started.push_async_callback(self._close_backends)
        for backend in config.storage:
            self._backends[backend.name] = await self._open_backend(backend)
        telemetry = set_up_telemetry(config.telemetry)
        self._started.push_async_callback(telemetry.close)
        self._participant = participant = await self._join(telemetry)
        if not await self._declare_queues():
            declaring = asyncio.create_task(self._keep_declaring())
            self._started.push_async_callback(_cancel, declaring)
        self._server = server = Server(
            router=participant.router,
            limits=config.limits,
            reload_config=self._reload_all,
            fast_door=config.fast_door,
            log_requests=config.log.level == "debug",
            tracing=telemetry.tracing,
            redirect=config.cluster.redirect,
        )
        self._started.push_async_callback(server.stop)
        addresses = await self._listen(server)
        if self._seat is None or config.cluster.coordinator != "local":  # else all others stop at the same time
            self._started.push_async_callback(participant.drain)  # while what is handed over is still served
        await participant.update(config.cluster.told_addresses() or tuple(map(_authority, self._own(addresses))))
        return addresses

    async def _listen(self, server: Server) -> list[tuple[str, int]]:
        config, seat = self._config, self._seat
        if seat is None:
            return await server.start(config.addresses(), config.grpc_address())
        # Clients that know which worker they want go to an address of its own, if there is one that they can reach.
        host = seat.addresses[0][0]
        own = [] if config.cluster.told_addresses() or is_everywhere(f"{host}:0") else [(host, 0)]
        return await server.start([*seat.addresses, *own], seat.grpc_address, shared=True)

    def _own(self, addresses: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those where no other worker is met, if there are any."""
        shared = {port for _, port in self._seat.addresses} if self._seat is not None else set()
        return [address for address in addresses if address[1] not in shared] or addresses

    async def _join(self, telemetry: Telemetry) -> Participant:
        config = self._config
        participant = Participant(
            coordinator=self._coordinator,
            me=self._introduce(),
            backends=self._backends,
            clock=self._clock,
            rng=random.Random(os.urandom(16)),  # noqa: S311 - jitter, not secrets
            limits=config.limits,
            observer=Observer(telemetry.tracing),
            connect=self._connect,
            lease_ms=config.cluster.lease_timeout_ms(),
        )
        peer_address = ""
        if config.cluster.listen or self._seat is not None:
            peer_address = await self._open_peer_door(participant)
        self._started.push_async_callback(participant.close)
        await participant.start(peer_address)
        return participant

    async def _open_peer_door(self, participant: Participant) -> str:
        """Where the others reach this instance, before they can hear of it."""
        from api.peer_door import PeerDoor  # whoever is alone does not load gRPC

        cluster = self._config.cluster
        listen, advertise = cluster.listen, cluster.advertise
        if self._seat is not None:
            listen, advertise = self._seat.peer_listen, self._seat.peer_advertise
        door = PeerDoor(participant.peers)
        self._started.push_async_callback(door.stop)
        bound = await door.start(listen)
        return advertise or bound

    async def _connect(self, address: str) -> Link:
        from api.peer_link import Caller

        return await Caller(self._me).connect(address)

    def _introduce(self) -> Member:
        """What the other instances are told of this one."""
        return Member(
            id=self._me,
            host=self._host,
            addresses=(),
            version=VERSION,
            started_at_ms=self._clock.now_ms(),
            backends={name: backend.affinity for name, backend in self._backends.items()},
            fleeting=tuple(name for name, backend in self._backends.items() if backend.driver == "memory"),
        )

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """Where gRPC is offered, if it is."""
        return self._server.grpc_address

    async def _open_backend(self, backend: BackendConfig) -> Backend:
        await self._claim(backend)
        return await open_backend(
            name=backend.name,
            driver=backend.driver,
            affinity=backend.affinity,
            options=backend.options,
            data_dir=Path(self._config.data_dir),
        )

    async def _claim(self, backend: BackendConfig) -> None:
        """Instances that share a data folder have the same backends by themselves."""
        if self._config.cluster.coordinator != "local" and backend.driver != "memory":
            is_file = backend.driver == "sqlite"
            home = home_of(Path(self._config.data_dir)) if is_file else SHARED
            await claim_backend(self._coordinator, backend.name, home, self._host)

    async def _close_backends(self) -> None:
        for backend in self._backends.values():
            await backend.close()

    async def _declare_queues(self) -> bool:
        """Make the queues that are declared and not there; False if a backend is down, and some have to wait."""
        for queue in missing_queues(self._config, self._participant.host):
            try:
                await self._participant.router.management.create_queue(queue.settings())
            except RetryRequest as error:
                _log.warning("declared queue has to wait", queue=queue.queue_name, reason=error.message)
                return False
            except Conflict:
                return False  # another instance makes it at the same time; look again
        return True

    async def _keep_declaring(self) -> None:
        pause_ms = _PAUSE_FIRST_MS
        done = False
        while not done:
            await sleep_ms(self._clock, pause_ms)
            pause_ms = min(_PAUSE_LAST_MS, 2 * pause_ms)
            try:
                done = await self._declare_queues()
            except QueratorError as error:
                _log.error("declared queue was not created", reason=error.message)
                return

    async def _reload_all(self) -> list[str]:
        """As `reload`, and then for the other workers too."""
        changes = await self.reload()
        if self._seat is not None:
            self._seat.reload_all()
        return changes

    async def reload(self) -> list[str]:
        """Read the configuration again; returns what changed. If not all of it can hold now, nothing changes."""
        if self._read_again is None:
            raise RequestFailed("configuration cannot be reloaded", "it was not read from anywhere")
        if self._stopping:
            raise Stopping
        async with self._changing:
            reading = self._read_again()
            outcome = await reconfigure(self._participant.router, self._config, reading, self._open_backend)
            self._follow(reading.config)
            try:
                await self._participant.update()
            except CoordinationError as error:
                raise RetryRequest("configuration holds, but the other instances were not told", str(error)) from error
            finally:
                await outcome.close_removed()
        _log.info("configuration reloaded", changes=outcome.changes)
        return outcome.changes

    def _follow(self, config: Config) -> None:
        """What is left to do, and cannot fail."""
        self._backends = dict(self._participant.host.backends)
        self._server.update_limits(config.limits)
        if config.log != self._config.log:
            set_up_logging(config.log, self._seat)
            self._server.log_requests(config.log.level == "debug")
        self._config = config

    async def stop(self) -> None:
        """Answer what waits, finish what runs, make everything durable. May be called twice."""
        self._stopping = True
        async with self._changing:
            await self._started.aclose()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def read_config(path: Path | None, overrides: Mapping[str, Any]) -> Reading:
    """Read the file, the environment and the flags, and check them with all that the program knows."""
    return read(path, overrides, _find_more_problems)


def _find_more_problems(config: Config) -> Iterator[Problem]:
    for option, details in coordination.find_mistakes(config.cluster):
        yield Problem(("cluster", option), INVALID, details)
    for index, backend in enumerate(config.storage):
        for option, mistake in drivers.find_mistakes(backend.driver, backend.options):
            yield Problem(("storage", index, *option.split(".", 1)), mistake.what, mistake.details)
    for index, queue in enumerate(config.queues):
        try:
            settings = queue.settings()
        except ValueError:
            continue  # a duration that cannot be read, which is told already
        for field, details in find_mistakes(settings, config.limits):
            yield Problem(("queues", index, *field.split(".")), INVALID, details)


def lock(data_dir: Path) -> IO[bytes]:
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


def serve(read_again: Callable[[], Reading]) -> int:
    """Run until SIGINT or SIGTERM; SIGHUP reads the configuration again. Returns the exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its own words would stand between the lines of the log
    config = read_again().checked()
    set_up_logging(config.log)
    if config.workers == 1:
        return uvloop.run(_serve(config, read_again))
    try:
        with lock(Path(config.data_dir)):
            return Supervisor(config, lambda seat: _work(config, read_again, seat)).run()
    except (QueratorError, OSError) as error:
        return _cannot_start(error)


def _work(config: Config, read_again: Callable[[], Reading], seat: Seat) -> int:
    """A worker. One that is started again has the configuration of now, if that could have been reloaded."""
    reading = read_again()
    if not reading.mistakes and not any(fixed_problems(config, reading.config)):
        config = reading.config
    set_up_logging(config.log, seat)
    return uvloop.run(_serve(config, read_again, seat))


async def _serve(config: Config, read_again: Callable[[], Reading], seat: Seat | None = None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    instance = Instance(config, read_again, seat)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(instance))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    if seat is not None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        loop.add_reader(seat.lifeline, stop.set)
    try:
        addresses = await instance.start()
    except (QueratorError, StorageError, CoordinationError, OSError) as error:
        await _cancel(*reloads)
        return _cannot_start(error)
    _tell(addresses, instance.grpc_address, seat)
    await stop.wait()
    if seat is not None:
        loop.remove_reader(seat.lifeline)
    _log.info("stopping")
    await _cancel(*reloads)
    await instance.stop()
    _log.info("stopped")
    return 0


def _cannot_start(error: Exception) -> int:
    _log.error("cannot start", reason=str(error))
    return 1


def _tell(addresses: list[tuple[str, int]], grpc_address: tuple[str, int] | None, seat: Seat | None) -> None:
    urls = [f"http://{_authority(address)}" for address in addresses]
    if seat is not None:
        _log.info("worker serves", urls=urls, grpc=_authority(grpc_address) if grpc_address else "")
        seat.tell_ready()
        return
    for url in urls:
        _log.info("listening", url=url, version=VERSION)
    if grpc_address is not None:
        _log.info("listening", grpc=_authority(grpc_address), version=VERSION)
    _log.info(f"""try: curl --json '{{"queue_name": "mail"}}' {urls[0]}/v1/queues.create""")


def _authority(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _reload(instance: Instance) -> None:
    try:
        await instance.reload()
    except QueratorError as error:
        _log.error("configuration was not reloaded", reason=error.message)


def set_up_logging(config: LogConfig, seat: Seat | None = None) -> None:
    """One event a line on standard error, for people or for programs. A worker says which one it is."""

    def add_worker(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return event if seat is None else {**event, "worker": seat.number}

    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if config.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            add_worker,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line is one write: workers share the stream
        cache_logger_on_first_use=False,
    )
