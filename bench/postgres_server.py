"""A private PostgreSQL server for benchmarks and tests: a cluster in a folder of its own, on a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.ports import lasting_port

INSTALL = "apt-get install postgresql"
USER = "bench"
# For tests in which no crash of the machine plays a part: the processes may die, what they wrote stays.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

_BINARIES = Path("/usr/lib/postgresql")
_USERS = ("postgres", "nobody")  # PostgreSQL refuses to run as root
_PATIENCE_S = 60.0
_PAUSE_S = 0.02
_HOST = "127.0.0.1"
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    # A queue's table is all dead rows; with the default of a minute between two looks a peer would drown in them.
    "autovacuum_naptime": "1s",
}


def installed() -> Path | None:
    """The folder of the newest version's programs, if there is one."""
    found = [path.parent for path in _BINARIES.glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name)) if found else None


class Postgres:
    """A server that can be stopped, crashed and started again; its data and its port stay the same.

    ``settings`` go over the defaults, which are durable. ``hba`` are lines of ``pg_hba.conf`` that go before the one
    that trusts everybody. ``tls`` are the files of a certificate and its key, which are copied. The folder must be reachable by an ordinary user; `private_postgres` makes such a one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        hba: Sequence[str] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        binaries = installed()
        if binaries is None:
            raise FileNotFoundError(f"PostgreSQL is not installed; {INSTALL}")
        self._binaries = binaries
        self._folder = folder
        self._settings = _SETTINGS | dict(settings or {})
        self._hba = hba
        self._tls = tls
        self._user = _other_user()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.address = ""

    def start(self) -> None:
        """Start, and return when connections are taken. The first time, the cluster is made."""
        if not self.port:
            self._make_cluster()
            self.port = lasting_port()
            self.address = f"postgresql://{USER}@{_HOST}:{self.port}/postgres"
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), "-h", _HOST, "-k", ""]
        with (self._folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C must reach who started it alone, who then stops everything in order
            )
        self.wait_until_open()

    def wait_until_open(self) -> None:
        """Until connections are taken, also after a server process was killed and all others began anew."""
        command = [str(self._binaries / "pg_isready"), "-q", "-h", _HOST, "-p", str(self.port), "-d", "postgres"]
        give_up_at = time.monotonic() + _PATIENCE_S
        while subprocess.run(command, check=False).returncode != 0:
            if self._started().poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"PostgreSQL does not start: {self.log()[-2000:]}")
            time.sleep(_PAUSE_S)

    def stop(self) -> None:
        """Stop in order: transactions are ended, everything is written."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Stop at once, as `pg_ctl stop -m immediate` does: the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def restart_immediate(self) -> None:
        """What `pg_ctl restart -m immediate` does."""
        self.crash()
        self.start()

    def backend_pids(self) -> list[int]:
        """The server processes that serve a connection each."""
        postmaster = self.pid()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in pids if _parent(pid) == postmaster and f"{_HOST}(" in _title(pid)]

    def kill_backend(self, pid: int | None = None) -> int:
        """Send SIGKILL to one server process that serves a connection, or to all. Returns how many were there.

        PostgreSQL then ends all others too, and recovers as after a crash.
        """
        pids = self.backend_pids() if pid is None else [pid]
        killed = 0
        for each in pids:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed += 1
        return killed

    def pid(self) -> int:
        return self._started().pid

    def log(self) -> str:
        return (self._folder / "postgres.log").read_text(encoding="utf-8", errors="replace")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _make_cluster(self) -> None:
        self._folder.mkdir(exist_ok=True)
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        initdb = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "-N"]
        subprocess.run(initdb, check=True, user=self._user, cwd=self._folder, stdout=subprocess.DEVNULL)
        hba = self._data / "pg_hba.conf"
        hba.write_text("".join(f"{line}\n" for line in self._hba) + hba.read_text())
        if self._tls is not None:
            for source, name in zip(self._tls, ("server.crt", "server.key"), strict=True):
                target = shutil.copy(source, self._data / name)
                shutil.chown(target, self._user or os.geteuid())
                Path(target).chmod(0o600)
            self._settings["ssl"] = "on"

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextmanager
def private_postgres(
    settings: Mapping[str, str] | None = None, hba: Sequence[str] = (), tls: tuple[Path, Path] | None = None
) -> Iterator[Postgres]:
    """A started server in a temporary folder, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="querator-postgres-") as folder:
        # PostgreSQL runs as another user if we are root, and has to get through.
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder) / "server", settings=settings, hba=hba, tls=tls)
        try:
            server.start()
            yield server
        finally:
            server.crash()


def _other_user() -> str | None:
    """Whom to run as: nobody else, unless we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in _USERS if user in known)


def _parent(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(status.rpartition(")")[2].split()[1])


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
