"""The configuration: one YAML file, with environment variables and flags over it. Everything has a default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from querator.durations import parse_duration
from querator.errors import InvalidRequest
from querator.items import MAX_SLOTS
from querator.limits import Limits
from querator.queues import QueueSettings, RetryPolicy

DEFAULT_LISTEN = "127.0.0.1:2319"

# Environment variables that go over the file; flags go over both.
_ENVIRONMENT = {
    "QUERATOR_LISTEN": "listen",
    "QUERATOR_DATA_DIR": "data_dir",
    "QUERATOR_LOG_FORMAT": "log.format",
    "QUERATOR_LOG_LEVEL": "log.level",
}


class BackendConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place for partitions."""

    name: str
    driver: str
    affinity: float = 1.0
    options: dict[str, Any] = {}


_EMBEDDED = BackendConfig(name="local-0", driver="sqlite", options={"path": "local-0.db"})


class RetryPolicyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    base: str = "0s"
    factor: float = 2.0
    max: str = "1h"
    jitter: float = 0.2


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue that is made at start if it is not there."""

    queue_name: str
    namespace: str = ""
    reference: str = ""
    dead_queue: str = ""
    lease_timeout: str = "1m"
    expire_timeout: str = "0s"
    max_attempts: int = 0
    requested_partitions: int = 1
    retry_policy: RetryPolicyConfig = RetryPolicyConfig()

    def settings(self) -> QueueSettings:
        policy = self.retry_policy
        return QueueSettings(
            queue_name=self.queue_name,
            namespace=self.namespace,
            reference=self.reference,
            dead_queue=self.dead_queue,
            lease_timeout_ms=parse_duration(self.lease_timeout),
            expire_timeout_ms=parse_duration(self.expire_timeout),
            max_attempts=self.max_attempts,
            requested_partitions=self.requested_partitions,
            retry_policy=RetryPolicy(
                base_ms=parse_duration(policy.base),
                factor=policy.factor,
                max_ms=parse_duration(policy.max),
                jitter=policy.jitter,
            ),
        )


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where traces go."""

    otlp_endpoint: str = ""  # HOST:PORT or URL of an OTLP collector (gRPC); empty: no traces are sent
    service_name: str = "querator"
    sample_ratio: float = 1.0  # of the traces that begin here, 0.0 to 1.0


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen: str | list[str] = DEFAULT_LISTEN
    data_dir: str = "./data"
    storage: list[BackendConfig] = msgspec.field(default_factory=lambda: [_EMBEDDED])
    queues: list[QueueConfig] = []
    fast_door: bool = True  # False: every request goes through aiohttp
    limits: Limits = Limits()
    log: LogConfig = LogConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    def addresses(self) -> list[tuple[str, int]]:
        """Where to listen: host and port."""
        texts = [self.listen] if isinstance(self.listen, str) else self.listen
        return [_address(text) for text in texts]


def load(path: Path | None, overrides: Mapping[str, Any]) -> Config:
    """Read the file, if any, and lay the environment and then ``overrides`` over it.

    Keys of ``overrides`` are paths such as ``log.level``; a value of None overrides nothing.
    """
    data = _read(path) if path is not None else {}
    environment = {option: os.environ.get(name) for name, option in _ENVIRONMENT.items()}
    for layer in (environment, overrides):
        for option, value in layer.items():
            if value is not None:
                _set(data, option, value)
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise InvalidRequest("configuration is invalid", str(error)) from None
    _check(config)
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidRequest("configuration cannot be read", f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest("configuration is not YAML", f"{path}: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidRequest("configuration is invalid", f"{path}: it must be a mapping of options")
    return data


def _set(data: dict[str, Any], option: str, value: Any) -> None:
    *parents, name = option.split(".")
    for parent in parents:
        if data.get(parent) is None:
            data[parent] = {}
        data = data[parent]
        if not isinstance(data, dict):
            raise InvalidRequest(f"{parent} is invalid", "it must be a mapping of options")
    data[name] = value


def _check(config: Config) -> None:
    config.addresses()
    _check_limits(config.limits)
    if not 0.0 <= config.telemetry.sample_ratio <= 1.0:
        raise InvalidRequest("telemetry.sample_ratio is invalid", "it must be between 0.0 and 1.0")
    names = [backend.name for backend in config.storage]
    if not names:
        raise InvalidRequest("storage is invalid", "at least one backend is needed")
    for index, backend in enumerate(config.storage):
        if names.index(backend.name) != index:
            raise InvalidRequest(f"storage[{index}].name is invalid", f"'{backend.name}' is there twice")
        if not 0.0 <= backend.affinity <= 1.0:
            raise InvalidRequest(f"storage[{index}].affinity is invalid", "it must be between 0.0 and 1.0")
    for index, queue in enumerate(config.queues):
        try:
            queue.settings()
        except ValueError as error:
            raise InvalidRequest(f"queues[{index}] is invalid", str(error)) from None


def _check_limits(limits: Limits) -> None:
    for field in Limits.__struct_fields__:
        if getattr(limits, field) < 1:
            raise InvalidRequest(f"limits.{field} is invalid", "it must be at least 1")
    if limits.block_items > MAX_SLOTS:
        raise InvalidRequest("limits.block_items is invalid", f"it must be at most {MAX_SLOTS}")


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidRequest("listen is invalid", f"'{text}' is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an address without host means all
