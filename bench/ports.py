"""Free ports on the loopback address, and waiting until somebody listens on one."""

from __future__ import annotations

import random
import socket
import subprocess
import time

_PATIENCE_S = 60.0
_PAUSE_S = 0.005
_LASTING = range(15_000, 32_000)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def lasting_port() -> int:
    """One below those that the kernel gives to outgoing connections, so that it is still free after a stop."""
    source = random.SystemRandom()
    while True:
        port = source.choice(_LASTING)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the process listens. Raises if it ends first, or takes a minute."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection((host, port), timeout=_PATIENCE_S).close()
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with code {process.returncode}") from None
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{process.args!r} does not listen on port {port}") from None
            time.sleep(_PAUSE_S)
        else:
            return
