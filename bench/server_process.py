"""A Querator server as a process of its own, and the few calls that the bench makes around a round."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.load import OK, RETRY_REQUEST, CallFailed, split_address
from bench.ports import free_port
from bench.wire import REQUEST_TIMEOUT, payload_number

_START_PATIENCE_S = 120.0
_STOP_PATIENCE_S = 30.0
_PAUSE_S = 0.005
_DRAIN_BATCH = 1000


class Control:
    """Calls to a server, one after another. Not for load."""

    def __init__(self, address: str) -> None:
        self.address = address
        host, port = split_address(address)
        self._connection = http.client.HTTPConnection(host, port, timeout=_START_PATIENCE_S)

    def call(self, name: str, **fields: object) -> dict[str, Any]:
        while True:
            status, answer = self._post(name, fields)
            if status == OK:
                return answer
            if status != RETRY_REQUEST:
                raise CallFailed(f"{name}: {status} {answer}")

    def _post(self, name: str, fields: dict[str, object]) -> tuple[int, dict[str, Any]]:
        self._connection.request("POST", f"/v1/{name}", json.dumps(fields), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")

    def healthy(self) -> bool:
        """Whether the server is there and well. False while nobody listens."""
        try:
            self._connection.request("GET", "/health")
            response = self._connection.getresponse()
            body = response.read()
        except (ConnectionError, http.client.HTTPException):
            self._connection.close()
            return False
        return response.status == OK and json.loads(body).get("status") == "pass"

    def create(self, queue_name: str, partitions: int, logical_queues: str = "") -> None:
        fields = {"logical_queues": logical_queues} if logical_queues else {}
        self.call(
            "queues.create", queue_name=queue_name, requested_partitions=partitions, lease_timeout="10m", **fields
        )

    def delete(self, queue_name: str) -> None:
        self.call("queues.delete", queue_name=queue_name, force=True)

    def waiting(self, queue_name: str) -> int:
        """All items in the queue, leased or not, by the server's own count."""
        stats = self.call("queue.stats", queue_name=queue_name)
        return sum(
            partition.get("total", 0)
            for logical_queue in stats["logicalQueues"]
            for partition in logical_queue["partitions"]
        )

    def drain(self, queue_name: str, count: int) -> list[int]:
        """Reserve and complete so many items; the numbers at the start of their payloads."""
        numbers: list[int] = []
        while len(numbers) < count:
            reserved = self.call(
                "queue.reserve",
                queue_name=queue_name,
                client_id="bench-drain",
                batch_size=min(_DRAIN_BATCH, count - len(numbers)),
                request_timeout=REQUEST_TIMEOUT,
            )
            partition = reserved.get("partition", 0)
            ids = [item["id"] for item in reserved["items"]]
            self.call(
                "queue.complete", queue_name=queue_name, partition=partition, ids=ids, request_timeout=REQUEST_TIMEOUT
            )
            numbers += [payload_number(base64.b64decode(item["bytes"])) for item in reserved["items"]]
        return numbers

    def close(self) -> None:
        self._connection.close()


class ServerProcess:
    """One server with its data in a folder of its own. May be killed and started again on the same data."""

    def __init__(
        self,
        folder: Path,
        driver: str = "sqlite",
        options: Mapping[str, object] | None = None,
        storage: Mapping[str, object] | None = None,
    ) -> None:
        """``options`` are of the configuration file, ``storage`` those of its backend."""
        self._folder = folder
        self._config = dict(options or {})
        if driver != "sqlite":
            backend = {"name": "bench", "driver": driver, "affinity": 1.0, "options": dict(storage or {})}
            self._config["storage"] = [backend]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "server.log"
        self.address = ""

    def start(self) -> float:
        """Start, wait until healthy, and say how many seconds that took."""
        self._folder.mkdir(exist_ok=True)
        self.address = f"127.0.0.1:{free_port()}"
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT)
        control = Control(self.address)
        try:
            while not control.healthy():
                self._check_alive(began)
                time.sleep(_PAUSE_S)
        finally:
            control.close()
        return time.monotonic() - began

    def _command(self) -> list[str]:
        program = shutil.which("querator", path=str(Path(sys.executable).parent))
        if program is None:
            raise FileNotFoundError(f"there is no querator command beside {sys.executable}; install the project first")
        command = [program, "serve", "--listen", self.address, "--data-dir", str(self._folder)]
        if not self._config:
            return command
        config = self._folder / "bench.yaml"
        config.write_text(json.dumps(self._config))
        return [*command, "--config", str(config)]

    def _check_alive(self, began: float) -> None:
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"the server ended with code {self.process.returncode}:\n{tail}")
        if time.monotonic() - began > _START_PATIENCE_S:
            raise TimeoutError(f"the server is not healthy after {_START_PATIENCE_S:g} s; see {self.log}")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def kill(self) -> None:
        """As a power cut would end it, as far as a process can tell."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the server did not stop within {_STOP_PATIENCE_S:g} s; see {self.log}") from None
