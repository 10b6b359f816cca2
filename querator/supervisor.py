"""The supervisor: one process that runs several instances on one host, and starts those again that die.

It forks its workers before it has threads or an event loop, so that they share what is loaded. They take connections at
the same addresses (SO_REUSEPORT); the supervisor holds these, and the data folder, and does nothing else.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from querator.config import UNIX, ClusterConfig, Config

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE_FIRST_S = 0.1  # before a worker that died is started again
_PAUSE_LAST_S = 5.0
_SETTLED_S = 10.0  # a worker that lived so long was well
_PATIENCE_S = 30.0  # with the stop of workers, beyond their grace
_SOCKET_PATH_BYTES = 100  # of the 108 (or 104) that a path of a socket may have, with its end
_READY = b"r"

Address = tuple[str, int]

_log = structlog.get_logger(__name__)


class Seat(NamedTuple):
    """The place of one worker."""

    number: int
    supervisor: int  # its process
    lifeline: int  # a pipe that ends when the supervisor does
    ready: int  # a pipe on which the worker says that it serves
    addresses: list[Address]  # which all workers share
    grpc_address: Address | None  # as well
    peer_listen: str
    peer_advertise: str

    def tell_ready(self) -> None:
        os.write(self.ready, _READY)
        os.close(self.ready)

    def reload_all(self) -> None:
        """Let all workers read the configuration again."""
        if os.getppid() == self.supervisor:
            os.kill(self.supervisor, signal.SIGHUP)


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.ready: int | None = None  # the other end of its pipe
        self.started_at_s = 0.0
        self.pause_s = _PAUSE_FIRST_S
        self.start_at_s = 0.0


class Supervisor:
    """`run` returns the exit code. ``work`` is what a worker does, and returns its own."""

    def __init__(self, config: Config, work: Callable[[Seat], int]) -> None:
        self._config = config
        self._work = work
        self._workers = [_Worker(number) for number in range(config.workers)]
        self._waiting = set(range(config.workers))  # for the first start
        self._selector = selectors.DefaultSelector()
        self._held: list[socket.socket] = []
        self._addresses: list[Address] = []
        self._grpc_address: Address | None = None
        self._lifeline = (-1, -1)
        self._bell = socket.socketpair()  # rung by signals
        self._stop_at_s: float | None = None
        self._pid = os.getpid()
        self._code = 0

    def run(self) -> int:
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self._hold_addresses()
            self._lifeline = os.pipe()
            for end in self._bell:
                end.setblocking(False)
            self._selector.register(self._bell[0], selectors.EVENT_READ)
            for number in (*SIGNALS, signal.SIGCHLD):
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._bell[1].fileno()))
            self._launch_due()
            while any(worker.pid for worker in self._workers) or self._stop_at_s is None:
                self._turn()
        _log.info("stopped")
        return self._code

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._until_next_s()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    for number in set(self._bell[0].recv(4096)):
                        self._hear(signal.Signals(number))
            else:
                self._hear_ready(key.data)
        if self._stop_at_s is None:
            self._launch_due()
        elif time.monotonic() > self._stop_at_s:
            self._cut_off()

    def _until_next_s(self) -> float | None:
        """How long there is nothing to do unless something happens."""
        if self._stop_at_s is None:
            times_s = [worker.start_at_s for worker in self._workers if not worker.pid and self._may_start(worker)]
        else:
            times_s = [self._stop_at_s]
        return max(0.0, min(times_s) - time.monotonic()) if times_s else None

    # Workers.

    def _launch_due(self) -> None:
        for worker in self._workers:
            if not worker.pid and self._may_start(worker) and worker.start_at_s <= time.monotonic():
                self._launch(worker)

    def _may_start(self, worker: _Worker) -> bool:
        """At first the first one alone, which makes the files that all share."""
        return worker.number == 0 or 0 not in self._waiting

    def _launch(self, worker: _Worker) -> None:
        ready = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the worker unblocks them when it can hear them
        pid = os.fork()
        if pid == 0:
            os.close(ready[0])
            self._become(self._seat(worker.number, ready[1]))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(ready[1])
        worker.pid, worker.ready, worker.started_at_s = pid, ready[0], time.monotonic()
        self._selector.register(ready[0], selectors.EVENT_READ, worker)

    def _become(self, seat: Seat) -> None:
        """The worker's side of the fork. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._lifeline[1])
            for end in self._bell:
                end.close()
            for held in self._held:
                held.close()
            for worker in self._workers:
                if worker.ready is not None:
                    os.close(worker.ready)
            self._selector.close()
            code = self._work(seat)
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 - whatever it is, it ends the worker and nothing else
            _log.exception("worker failed", worker=seat.number)
        finally:
            os._exit(code)

    def _seat(self, number: int, ready: int) -> Seat:
        cluster = self._config.cluster
        return Seat(
            number=number,
            supervisor=self._pid,
            lifeline=self._lifeline[0],
            ready=ready,
            addresses=self._addresses,
            grpc_address=self._grpc_address,
            peer_listen=peer_listen(cluster, Path(self._config.data_dir), number),
            peer_advertise=_of_worker(cluster.advertise, number),
        )

    def _hear_ready(self, worker: _Worker) -> None:
        assert worker.ready is not None
        is_ready = os.read(worker.ready, 1) == _READY
        self._forget_ready(worker)
        if is_ready and worker.number in self._waiting:
            self._waiting.discard(worker.number)
            if not self._waiting:
                for host, port in self._addresses:
                    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                    _log.info("listening", url=f"http://{authority}", workers=len(self._workers))

    def _forget_ready(self, worker: _Worker) -> None:
        if worker.ready is not None:
            self._selector.unregister(worker.ready)
            os.close(worker.ready)
            worker.ready = None

    # Signals.

    def _hear(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            for worker in self._workers:
                self._reap(worker)
        elif number == signal.SIGHUP:
            self._send(signal.SIGHUP)
        else:
            self._stop(0)

    def _reap(self, worker: _Worker) -> None:
        if not worker.pid:
            return
        pid, status = os.waitpid(worker.pid, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        lived_s = time.monotonic() - worker.started_at_s
        worker.pid = 0
        self._forget_ready(worker)
        if self._stop_at_s is not None:
            self._code = self._code or (0 if code in {0, -signal.SIGTERM} else 1)
        elif worker.number in self._waiting:
            self._stop(1)  # it has said why
        else:
            pause_s = _PAUSE_FIRST_S if lived_s > _SETTLED_S else worker.pause_s
            worker.start_at_s = time.monotonic() + pause_s
            worker.pause_s = min(_PAUSE_LAST_S, 2 * pause_s)
            _log.error("worker ended", worker=worker.number, code=code, start_in_ms=int(pause_s * 1000))

    def _stop(self, code: int) -> None:
        if self._stop_at_s is None:
            _log.info("stopping")
            self._code = code
            self._stop_at_s = time.monotonic() + self._config.limits.stop_grace_ms / 1000 + _PATIENCE_S
            self._send(signal.SIGTERM)

    def _cut_off(self) -> None:
        _log.error("workers did not stop", workers=[worker.number for worker in self._workers if worker.pid])
        self._stop_at_s = time.monotonic() + _PATIENCE_S
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)  # until it is reaped there is something by this number

    # Addresses.

    def _hold_addresses(self) -> None:
        """Find out which port any free one is, and that nobody else is there. Raises `OSError`."""
        self._addresses = [self._hold(address) for address in self._config.addresses()]
        grpc_address = self._config.grpc_address()
        if grpc_address is not None:
            self._grpc_address = self._hold(grpc_address)

    def _hold(self, address: Address) -> Address:
        host, port = address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        with _bound(family, place, shared=False):
            pass  # another server that shares its address would not be noticed by those that share it too
        held = _bound(family, place, shared=True)
        self._held.append(held)
        return host, held.getsockname()[1]

    def _close(self) -> None:
        self._selector.close()
        for held in self._held:
            held.close()
        for end in self._lifeline:
            if end >= 0:
                os.close(end)
        for bell in self._bell:
            bell.close()


def _bound(family: int, place: tuple[object, ...], *, shared: bool) -> socket.socket:
    """A socket that holds an address and takes no connections."""
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(place)
    except OSError as error:
        held.close()
        raise OSError(error.errno, f"{place[0]}:{place[1]}: {error.strerror}") from None
    return held


def peer_listen(cluster: ClusterConfig, data_dir: Path, number: int) -> str:
    """Where a worker's peers reach it: beside the others at the configured address, or at a socket in the data folder."""
    if cluster.listen:
        return _of_worker(cluster.listen, number)
    path = data_dir.resolve() / f"peer-{number}"
    return f"{UNIX}{path}" if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES else "127.0.0.1:0"


def _of_worker(address: str, number: int) -> str:
    """The next ports, or paths, after that of the first worker."""
    if not address or number == 0:
        return address
    if address.startswith(UNIX):
        return f"{address}-{number}"
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}" if int(port) else address
