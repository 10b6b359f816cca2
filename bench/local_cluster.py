"""A cluster on this machine to look at: `make cluster`. etcd, PostgreSQL and some instances, all gone after Ctrl-C."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bench import etcd_server, postgres_server
from bench.etcd_server import Etcd
from bench.ports import lasting_port
from bench.postgres_server import Postgres

_PATIENCE_S = 60.0
_PAUSE_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HOST = "127.0.0.1"
_PROGRAM = Path(sys.executable).with_name("querator")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # all of it is on this host


class Failed(Exception):
    """The cluster cannot be started, for the reason that it says."""


class Member:
    """One instance, in a folder of its own."""

    def __init__(self, folder: Path, number: int, port: int, etcd: Etcd, postgres: Postgres) -> None:
        self.url = f"http://{_HOST}:{port}"
        self.log = folder / f"instance-{number}.log"
        self._config = folder / f"instance-{number}.json"  # which is YAML too
        backend = {"name": "pg-a", "driver": "postgres", "options": {"dsn": postgres.address}}
        cluster = {"coordinator": "etcd", "endpoints": [etcd.endpoint], "listen": f"{_HOST}:0"}
        config = {
            "listen": f"{_HOST}:{port}",
            "grpc_listen": "none",
            "data_dir": str(folder / f"instance-{number}"),
            "cluster": cluster,
            "storage": [backend],
        }
        self._config.write_text(json.dumps(config, indent=2), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        command = [str(_PROGRAM), "serve", "--config", str(self._config)]
        with self.log.open("ab") as log:
            # Ctrl-C must reach this program alone, which stops what it has started in order.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0)

    def stop(self) -> None:
        if self._process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def sees(self) -> int:
        """How many instances there are, as this one knows; 0 if it does not answer yet."""
        if self.process.poll() is not None:
            words = "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
            raise Failed(f"{self.url} did not start:\n{words}")
        request = urllib.request.Request(f"{self.url}/v1/cluster.info", b"{}", {"Content-Type": "application/json"})
        try:
            with _OPENER.open(request, timeout=_PATIENCE_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            return 0
        return len(found.get("instances", ()))


@contextmanager
def running(folder: Path, ports: Sequence[int]) -> Iterator[tuple[Etcd, Postgres, list[Member]]]:
    """Everything started, and every instance aware of every other; all stopped afterwards, the instances first."""
    for server, name in ((etcd_server, "etcd"), (postgres_server, "PostgreSQL")):
        if server.installed() is None:
            raise Failed(f"{name} is not installed; {server.INSTALL}")
    with ExitStack() as stack:
        etcd, postgres = Etcd(folder / "etcd"), Postgres(folder / "postgres")
        stack.callback(etcd.stop)
        stack.callback(postgres.stop)
        etcd.start()
        postgres.start()
        members = [Member(folder, number, port, etcd, postgres) for number, port in enumerate(ports, 1)]
        for member in members:
            stack.callback(member.stop)
            member.start()
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while any(member.sees() != len(members) for member in members):
            if time.monotonic() > give_up_at_s:
                raise Failed(f"the instances do not find each other; see the logs in {folder}")
            time.sleep(_PAUSE_S)
        yield etcd, postgres, members


def _print(folder: Path, etcd: Etcd, postgres: Postgres, members: list[Member]) -> None:
    first, last = members[0].url, members[-1].url
    print(f"etcd         {etcd.endpoint}")
    print(f"PostgreSQL   {postgres.address}")
    for number, member in enumerate(members, 1):
        print(f"instance {number}   {member.url}   process {member.process.pid}   log {member.log}")
    print(f"""
In another terminal, for example:
  {_PROGRAM} create mail --partitions 6 --url {first}
  {_PROGRAM} produce mail hello --url {first}
  {_PROGRAM} reserve mail --complete --url {last}
  curl --json '{{}}' {last}/v1/cluster.info
  kill -9 {members[0].process.pid}      and see {last} go on
Everything is in {folder}. Ctrl-C stops all of it.""")
    sys.stdout.flush()


def _interrupt(*_: object) -> NoReturn:
    """Once: whoever is impatient must not interrupt the stopping."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--instances", type=int, default=3, help="how many; 3 unless told otherwise")
    parser.add_argument(
        "--port", type=int, default=0, help="of the first instance, the others have the next; 0: free ones"
    )
    parser.add_argument("--folder", type=Path, help="for logs and data, empty and kept; else a temporary one")
    told = parser.parse_args(arguments)
    if told.folder is not None and told.folder.exists() and any(told.folder.iterdir()):
        parser.error(f"--folder must be empty, and {told.folder} is not")
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    ports = [told.port + number if told.port else lasting_port() for number in range(told.instances)]
    folder = told.folder or Path(tempfile.mkdtemp(prefix="querator-cluster-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user if we are root, and has to get through
        with running(folder.resolve(), ports) as (etcd, postgres, members):
            _print(folder, etcd, postgres, members)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        print("stopped")
    except (Failed, RuntimeError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 1
    finally:
        if told.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
