"""A private etcd of one member, for tests and benchmarks: in a folder of its own, on ports of its own."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.ports import lasting_port

INSTALL = "apt-get install etcd-server"

_PATIENCE_S = 60.0
_PAUSE_S = 0.02
_HOST = "127.0.0.1"
_CLOSED_PROXY = urllib.request.ProxyHandler({})  # whatever the environment says, this is on the same host


def installed() -> str | None:
    """The path of the program, if it is there."""
    return shutil.which("etcd")


class Etcd:
    """A member that can be stopped, killed, paused and started again; its data and its ports stay the same.

    With ``tls`` (a folder with ca.crt, server.crt and server.key) clients must have a certificate of that authority.
    """

    def __init__(self, folder: Path, *, options: Sequence[str] = (), tls: Path | None = None) -> None:
        program = installed()
        if program is None:
            raise FileNotFoundError(f"etcd is not installed; {INSTALL}")
        self._program = program
        self._folder = folder
        self._options = options
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"{_HOST}:{lasting_port()}"
        self._peer = f"http://{_HOST}:{lasting_port()}"
        self._url = f"{'https' if tls else 'http'}://{self.endpoint}"

    def start(self) -> None:
        """Start, and return when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "etcd.log").open("ab") as log:
            # In a group of its own: Ctrl-C must reach who started it alone, who then stops everything in order.
            self._process = subprocess.Popen(
                self._command(), cwd=self._folder, stdout=log, stderr=subprocess.STDOUT, process_group=0
            )
        give_up_at = time.monotonic() + _PATIENCE_S
        while not self._is_healthy():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"etcd does not start: {self.log()[-2000:]}")
            time.sleep(_PAUSE_S)

    def stop(self) -> None:
        """Stop in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would end it, as far as a process can tell."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It stays connected and is silent."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._started().send_signal(signal.SIGCONT)

    def call(self, path: str, body: Mapping[str, Any], token: str = "") -> dict[str, Any]:
        """A call of etcd's JSON gateway, such as ``auth/user/add``."""
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(f"{self._url}/v3/{path}", json.dumps(body).encode(), headers)
        with self._opener().open(request, timeout=_PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def log(self) -> str:
        return (self._folder / "etcd.log").read_text(encoding="utf-8", errors="replace")

    def _command(self) -> list[str]:
        command = [self._program, "--name=test", f"--data-dir={self._folder / 'data'}"]
        command += [f"--listen-client-urls={self._url}", f"--advertise-client-urls={self._url}"]
        command += [f"--listen-peer-urls={self._peer}", f"--initial-advertise-peer-urls={self._peer}"]
        command += [f"--initial-cluster=test={self._peer}", "--logger=zap", *self._options]
        if self._tls:
            command += [f"--cert-file={self._tls / 'server.crt'}", f"--key-file={self._tls / 'server.key'}"]
            command += [f"--trusted-ca-file={self._tls / 'ca.crt'}", "--client-cert-auth"]
        return command

    def _is_healthy(self) -> bool:
        try:
            with self._opener().open(f"{self._url}/health", timeout=_PATIENCE_S) as answer:
                return bool(json.load(answer)["health"] == "true")
        except (urllib.error.URLError, ConnectionError):
            return False

    def _opener(self) -> urllib.request.OpenerDirector:
        if self._tls is None:
            return urllib.request.build_opener(_CLOSED_PROXY)
        context = ssl.create_default_context(cafile=self._tls / "ca.crt")
        context.load_cert_chain(self._tls / "client.crt", self._tls / "client.key")
        return urllib.request.build_opener(_CLOSED_PROXY, urllib.request.HTTPSHandler(context=context))

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None
