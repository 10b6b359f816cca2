"""The configuration: its options, their defaults, and what they may be.

`querator.config_sources` reads it from a file, the environment and flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from querator.durations import parse_duration
from querator.errors import InvalidRequest
from querator.items import MAX_SLOTS
from querator.limits import Limits
from querator.names import check_queue_name
from querator.queues import AUTO, QueueSettings, RetryPolicy, read_logical_queues

DEFAULT_LISTEN = "127.0.0.1:2319"
DEFAULT_GRPC_LISTEN = "127.0.0.1:2320"  # beside the default of `listen`, and no other

INVALID = "is invalid"

UNIX = "unix:"  # before the path of a socket
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to be refused where one address is needed
MAX_WORKERS = 256
_MIN_LEASE_MS = 1_000
_MAX_LEASE_MS = 600_000

Path = tuple[str | int, ...]  # the way to an option: ("storage", 1, "affinity")


class Problem(NamedTuple):
    """What is wrong with one option."""

    path: Path
    what: str  # "is invalid", "is unknown", "is missing"
    details: str


def option_name(path: Path) -> str:
    """``storage[1].affinity``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of options."""


class BackendConfig(Section, frozen=True, kw_only=True):
    """One place for partitions."""

    name: str
    driver: str
    affinity: float = 1.0
    options: dict[str, Any] = {}


def embedded(count: int = 1) -> list[BackendConfig]:
    """The backends of a server that names none: one for each worker."""
    names = [f"local-{number}" for number in range(count)]
    return [BackendConfig(name=name, driver="sqlite", options={"path": f"{name}.db"}) for name in names]


class RetryPolicyConfig(Section, frozen=True, kw_only=True):
    base: str = "0s"
    factor: float = 2.0
    max: str = "1h"
    jitter: float = 0.2


class QueueConfig(Section, frozen=True, kw_only=True):
    """A queue that is made at start if it is not there."""

    queue_name: str
    namespace: str = ""
    reference: str = ""
    dead_queue: str = ""
    lease_timeout: str = "1m"
    expire_timeout: str = "0s"
    max_attempts: int = 0
    requested_partitions: int = 1
    logical_queues: str | int = AUTO  # or how many
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
            logical_queues=read_logical_queues(self.logical_queues),
            retry_policy=RetryPolicy(
                base_ms=parse_duration(policy.base),
                factor=policy.factor,
                max_ms=parse_duration(policy.max),
                jitter=policy.jitter,
            ),
        )


class LogConfig(Section, frozen=True, kw_only=True):
    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """Where traces go."""

    otlp_endpoint: str = ""  # HOST:PORT or URL of an OTLP collector (gRPC); empty: no traces are sent
    service_name: str = "querator"
    sample_ratio: float = 1.0  # of the traces that begin here, 0.0 to 1.0


class ClusterConfig(Section, frozen=True, kw_only=True):
    """How instances agree, and how they reach each other."""

    coordinator: Literal["local", "etcd"] = "local"
    endpoints: str | list[str] = []  # of etcd: HOST:PORT of its members
    prefix: str = "/querator/"  # before every key in etcd
    user: str = ""  # of etcd
    password: str = ""
    ca_file: str = ""  # of the TLS to etcd
    cert_file: str = ""
    key_file: str = ""
    listen: str = ""  # where other instances reach this one: HOST:PORT or unix:PATH; empty: nowhere
    advertise: str = ""  # what they are told; empty: what `listen` bound
    advertise_http: str | list[str] = []  # what clients are told; empty: what the `listen` of HTTP bound
    redirect: bool = False  # whether clients that say nothing are sent to the owner instead of being passed on
    lease_timeout: str = "10s"  # after which an instance that is not heard of is gone
    host: str = ""  # the name of this machine; empty: its own

    def lease_timeout_ms(self) -> int:
        return parse_duration(self.lease_timeout)

    def all_endpoints(self) -> tuple[str, ...]:
        return _texts(self.endpoints)

    def told_addresses(self) -> tuple[str, ...]:
        """Where clients are told to go, if that is configured."""
        return _texts(self.advertise_http)


class Config(Section, frozen=True, kw_only=True):
    listen: str | list[str] = DEFAULT_LISTEN
    grpc_listen: str = "auto"  # "auto": at its default address if `listen` is at its own, else nowhere
    data_dir: str = "./data"
    cluster: ClusterConfig = ClusterConfig()
    workers: int = 1  # instances on this host
    storage: list[BackendConfig] = msgspec.field(default_factory=embedded)
    queues: list[QueueConfig] = []
    fast_door: bool = True  # False: every request goes through aiohttp
    limits: Limits = Limits()
    log: LogConfig = LogConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    def addresses(self) -> list[tuple[str, int]]:
        """Where to listen: host and port."""
        return [_address(text) for text in _texts(self.listen)]

    def grpc_address(self) -> tuple[str, int] | None:
        """Where gRPC is offered, if it is."""
        if self.grpc_listen in {"", "none"}:
            return None
        if self.grpc_listen != "auto":
            return _address(self.grpc_listen)
        return _address(DEFAULT_GRPC_LISTEN) if self.listen in (DEFAULT_LISTEN, [DEFAULT_LISTEN]) else None


def find_problems(config: Config) -> Iterator[Problem]:
    """Everything that no type can say, as far as it can be known without the drivers and the queues that exist."""
    yield from _listen_problems(config.listen)
    if config.grpc_listen not in {"", "auto", "none"}:
        yield from _address_problems(("grpc_listen",), config.grpc_listen)
    if not config.data_dir:
        yield Problem(("data_dir",), INVALID, "it must not be empty")
    if not 1 <= config.workers <= MAX_WORKERS:
        yield Problem(("workers",), INVALID, f"it must be between 1 and {MAX_WORKERS}")
    yield from _cluster_problems(config)
    yield from _storage_problems(config.storage)
    yield from _queues_problems(config.queues)
    yield from _limits_problems(config.limits)
    if not 0.0 <= config.telemetry.sample_ratio <= 1.0:
        yield Problem(("telemetry", "sample_ratio"), INVALID, "it must be between 0.0 and 1.0")


def _listen_problems(listen: str | list[str]) -> Iterator[Problem]:
    if not listen:
        yield Problem(("listen",), INVALID, "it must name an address, as HOST:PORT")
    elif isinstance(listen, str):
        yield from _address_problems(("listen",), listen)
    else:
        for index, text in enumerate(listen):
            yield from _address_problems(("listen", index), text)


def _cluster_problems(config: Config) -> Iterator[Problem]:
    cluster = config.cluster
    yield from _lease_problems(cluster.lease_timeout)
    yield from _peer_problems(cluster)
    for text in cluster.told_addresses():
        yield from _address_problems(("cluster", "advertise_http"), text)
    if cluster.coordinator == "etcd" and not cluster.listen:
        details = "other instances have to reach this one: name an address, as HOST:PORT"
        yield Problem(("cluster", "listen"), "is missing", details)
    try:
        is_open = any(host in _EVERYWHERE for host, _ in config.addresses())
    except ValueError:
        return  # which is told already
    if cluster.coordinator == "etcd" and is_open and not cluster.told_addresses():
        details = "listen is at all addresses: name one that clients can reach, as HOST:PORT"
        yield Problem(("cluster", "advertise_http"), "is missing", details)


def _lease_problems(lease_timeout: str) -> Iterator[Problem]:
    path = ("cluster", "lease_timeout")
    try:
        lease_ms = parse_duration(lease_timeout)
    except ValueError as error:
        yield Problem(path, INVALID, str(error))
        return
    if not _MIN_LEASE_MS <= lease_ms <= _MAX_LEASE_MS:
        yield Problem(path, INVALID, "it must be between 1s and 10m")


def _peer_problems(cluster: ClusterConfig) -> Iterator[Problem]:
    for option in ("listen", "advertise"):
        text = getattr(cluster, option)
        if text and not text.startswith(UNIX):
            yield from _address_problems(("cluster", option), text)
    if cluster.listen and not cluster.advertise and is_everywhere(cluster.listen):
        details = "cluster.listen is at all addresses: name one that other instances can reach, as HOST:PORT"
        yield Problem(("cluster", "advertise"), "is missing", details)
    if cluster.advertise and not cluster.listen:
        yield Problem(("cluster", "advertise"), INVALID, "there is nothing to advertise without cluster.listen")


def is_everywhere(address: str) -> bool:
    """Whether it means all addresses of a machine, and so is none that others could go to."""
    try:
        return not address.startswith(UNIX) and _address(address)[0] in _EVERYWHERE
    except ValueError:
        return False


def _texts(one_or_several: str | list[str]) -> tuple[str, ...]:
    return (one_or_several,) if isinstance(one_or_several, str) else tuple(one_or_several)


def _address_problems(path: Path, text: str) -> Iterator[Problem]:
    try:
        _address(text)
    except ValueError as error:
        yield Problem(path, INVALID, str(error))


def _storage_problems(storage: list[BackendConfig]) -> Iterator[Problem]:
    if not storage:
        yield Problem(("storage",), INVALID, "at least one backend is needed")
    names = [backend.name for backend in storage]
    places = [(backend.driver, backend.options) for backend in storage]
    for index, backend in enumerate(storage):
        yield from _name_problems(("storage", index, "name"), backend.name, names.index(backend.name) != index)
        if not 0.0 <= backend.affinity <= 1.0:
            yield Problem(("storage", index, "affinity"), INVALID, "it must be between 0.0 and 1.0")
        first = places.index(places[index])
        if backend.options and first != index:
            details = f"'{names[first]}' is the same place; one place is one backend"
            yield Problem(("storage", index, "options"), INVALID, details)


def _queues_problems(queues: list[QueueConfig]) -> Iterator[Problem]:
    names = [queue.queue_name for queue in queues]
    declared = {queue.queue_name: queue for queue in queues}
    for index, queue in enumerate(queues):
        path: Path = ("queues", index)
        yield from _name_problems((*path, "queue_name"), queue.queue_name, names.index(queue.queue_name) != index)
        for field in ("lease_timeout", "expire_timeout"):
            yield from _duration_problems((*path, field), getattr(queue, field))
        try:
            read_logical_queues(queue.logical_queues)
        except ValueError as error:
            yield Problem((*path, "logical_queues"), INVALID, str(error))
        for field in ("base", "max"):
            yield from _duration_problems((*path, "retry_policy", field), getattr(queue.retry_policy, field))
        if queue.dead_queue:
            yield from _dead_queue_problems((*path, "dead_queue"), queue, declared)


def _name_problems(path: Path, name: str, is_repeated: bool) -> Iterator[Problem]:
    try:
        check_queue_name(name)
    except InvalidRequest as error:
        yield Problem(path, INVALID, error.details)
    if is_repeated:
        yield Problem(path, INVALID, f"'{name}' is there twice")


def _duration_problems(path: Path, text: str) -> Iterator[Problem]:
    try:
        parse_duration(text)
    except ValueError as error:
        yield Problem(path, INVALID, str(error))


def _dead_queue_problems(path: Path, queue: QueueConfig, declared: dict[str, QueueConfig]) -> Iterator[Problem]:
    """One that is not declared may exist already; that shows when the queue is made."""
    if queue.dead_queue == queue.queue_name:
        yield Problem(path, INVALID, "a queue cannot be its own dead queue")
    elif queue.dead_queue in declared and declared[queue.dead_queue].dead_queue:
        yield Problem(path, INVALID, f"'{queue.dead_queue}' has a dead queue of its own")


def _limits_problems(limits: Limits) -> Iterator[Problem]:
    for field in Limits.__struct_fields__:
        if getattr(limits, field) < 1:
            yield Problem(("limits", field), INVALID, "it must be at least 1")
    if limits.block_items > MAX_SLOTS:
        yield Problem(("limits", "block_items"), INVALID, f"it must be at most {MAX_SLOTS}")
    if limits.min_timeout_ms > limits.max_timeout_ms:
        yield Problem(("limits", "min_timeout_ms"), INVALID, "it must not be above limits.max_timeout_ms")
    elif not limits.min_timeout_ms <= limits.default_timeout_ms <= limits.max_timeout_ms:
        details = "it must be between limits.min_timeout_ms and limits.max_timeout_ms"
        yield Problem(("limits", "default_timeout_ms"), INVALID, details)


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"'{text}' is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - an address without host means all
