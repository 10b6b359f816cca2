"""Every request and answer of the API as it is written in JSON; the server and the client share these types.

They follow the ``.proto`` files in ``api/proto``, and a test holds the two together. What is absent is zero (in
protobuf there is no difference); where the difference matters, the field is `UNSET`. Null is never a value.
Fields under "extended" are only in answers to callers that send ``Querator-Extended: 1``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, field

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]  # RFC 3339; in UTC in answers
Duration = str  # as `querator.durations` reads it


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A request, or a part of one. A field that nobody knows is refused, so that a typo is never silently lost."""


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """An answer, or a part of one. Zero values are omitted; a client skips the fields that it does not know."""


class Envelope(Answer, kw_only=True):
    """The answer without data, and every error."""

    code: Int32 = 0
    code_text: str = ""
    message: str = ""
    details: dict[str, str] = {}


# queue.*


class ProduceItem(Request, kw_only=True):
    encoding: str = ""
    kind: str = ""
    reference: str = ""
    enqueue_at: Instant | UnsetType = UNSET
    payload: bytes = field(default=b"", name="bytes")
    utf8: str = ""  # in place of `payload`, which wins
    expire_timeout: Duration = ""  # in place of the queue's


class ProduceRequest(Request, kw_only=True):
    queue_name: str = ""
    request_timeout: Duration = ""
    items: list[ProduceItem] = []


class ProduceAnswer(Envelope, kw_only=True):
    partition: Int32 = 0  # extended
    ids: list[str] = []  # extended; in the order of the request's items


class ReserveRequest(Request, kw_only=True):
    queue_name: str = ""
    batch_size: Int32 = 0
    client_id: str = ""
    request_timeout: Duration = ""
    lease_timeout: Duration = ""  # in place of the queue's


class ReservedItem(Answer):  # not keyword-only: built a thousand at a time, where that costs a third
    id: str
    lease_deadline: Instant
    attempts: Int32 = 0
    payload: bytes = field(default=b"", name="bytes")
    encoding: str = ""
    kind: str = ""
    reference: str = ""
    created_at: Instant | UnsetType = UNSET  # extended


class ReserveAnswer(Answer, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    items: list[ReservedItem] = []


class CompleteRequest(Request, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    request_timeout: Duration = ""
    ids: list[str] = []


class RetryItem(Request, kw_only=True):
    id: str = ""
    retry_at: Instant | UnsetType = UNSET  # absent: as the queue's retry policy says
    dead: bool = False


class RetryRequest(Request, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    items: list[RetryItem] = []


class RenewRequest(Request, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    ids: list[str] = []
    lease_timeout: Duration = ""  # in place of the queue's


class RenewedItem(Answer, kw_only=True):
    id: str
    lease_deadline: Instant


class RenewAnswer(Answer, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    items: list[RenewedItem] = []


class StatsRequest(Request, kw_only=True):
    queue_name: str = ""


class PartitionStats(Answer, kw_only=True):
    partition: Int32 = 0
    total: Int32 = 0
    total_leased: Int32 = 0
    failures: Int32 = 0
    average_age: Duration = ""
    average_leased_age: Duration = ""
    scheduled: Int32 = 0
    backend: str = ""  # extended, as the rest
    state: str = ""
    epoch: int = 0
    ready: int = 0
    outbox: int = 0
    oldest_age: Duration = ""
    arrived: int = 0
    completed: int = 0


class LogicalQueueStats(Answer, kw_only=True):
    produce_waiting: Int32 = 0
    lease_waiting: Int32 = 0
    complete_waiting: Int32 = 0
    in_flight: Int32 = 0
    partitions: list[PartitionStats] = []


class StatsAnswer(Answer, kw_only=True):
    queue_name: str = ""
    logical_queues: list[LogicalQueueStats] = field(default_factory=list, name="logicalQueues")
    partial: bool = False  # extended: some partitions are not in it
    missing: list[str] = []  # extended: the instances that did not tell what they hold


class ClearRequest(Request, kw_only=True):
    queue_name: str = ""
    scheduled: bool = False
    queue: bool = False
    destructive: bool = False


class ReloadRequest(Request, kw_only=True):
    queue_name: str = ""


class PauseRequest(Request, kw_only=True):
    """Of `queue.pause` and `queue.resume`. Naming neither way means both."""

    queue_name: str = ""
    produce: bool = False
    reserve: bool = False


# queues.*


class RetryPolicy(Request, kw_only=True):
    base: Duration | UnsetType = UNSET
    factor: float | UnsetType = UNSET
    max: Duration | UnsetType = UNSET
    jitter: float | UnsetType = UNSET


class CreateRequest(Request, kw_only=True):
    queue_name: str = ""
    dead_queue: str = ""
    reference: str = ""
    lease_timeout: Duration = ""
    expire_timeout: Duration = ""
    max_attempts: Int32 = 0
    requested_partitions: Int32 = 0
    namespace: str = ""
    retry_policy: RetryPolicy | UnsetType = UNSET
    logical_queues: str = ""  # "auto" or a number


class UpdateRequest(Request, kw_only=True):
    """What is absent stays as it is."""

    queue_name: str = ""
    dead_queue: str | UnsetType = UNSET
    reference: str | UnsetType = UNSET
    lease_timeout: Duration | UnsetType = UNSET
    expire_timeout: Duration | UnsetType = UNSET
    max_attempts: Int32 | UnsetType = UNSET
    requested_partitions: Int32 | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    retry_policy: RetryPolicy | UnsetType = UNSET
    logical_queues: str | UnsetType = UNSET


class ListRequest(Request, kw_only=True):
    pivot: str = ""
    limit: Int32 = 0
    namespace: str = ""


class PartitionInfo(Answer, kw_only=True):
    partition: Int32 = 0
    backend: str = ""  # extended, as the rest
    state: str = ""
    epoch: int = 0
    logical_queue: Int32 = 0
    ready: int = 0
    leased: int = 0
    scheduled: int = 0
    outbox: int = 0
    instance: str = ""
    address: str = ""


class RetryPolicyInfo(Answer, kw_only=True):
    base: Duration = ""
    factor: float = 0.0
    max: Duration = ""
    jitter: float = 0.0


class QueueInfo(Answer, kw_only=True):
    queue_name: str = ""
    created_at: Instant | UnsetType = UNSET
    updated_at: Instant | UnsetType = UNSET
    dead_queue: str = ""
    reference: str = ""
    lease_timeout: Duration = ""
    expire_timeout: Duration = ""
    max_attempts: Int32 = 0
    requested_partitions: Int32 = 0
    partitions: list[PartitionInfo] = []
    namespace: str = ""
    retry_policy: RetryPolicyInfo | UnsetType = UNSET  # extended, as the rest
    produce_paused: bool = False
    reserve_paused: bool = False
    logical_queues: str = ""
    partial: bool = False  # what some partitions hold is not known
    missing: list[str] = []  # the instances that did not tell what they hold


class ListAnswer(Answer, kw_only=True):
    items: list[QueueInfo] = []


class InfoRequest(Request, kw_only=True):
    queue_name: str = ""


class DeleteRequest(Request, kw_only=True):
    queue_name: str = ""
    force: bool = False


# storage/* and storage.*


class StorageListRequest(Request, kw_only=True):
    """Of `storage/items.list` and `storage/scheduled.list`."""

    queue_name: str = ""
    partition: Int32 = 0
    pivot: str = ""
    limit: Int32 = 0


class StorageItem(Request, kw_only=True):
    id: str = ""
    source_id: str = ""
    is_leased: bool = False
    lease_deadline: Instant | UnsetType = UNSET
    expire_deadline: Instant | UnsetType = UNSET
    created_at: Instant | UnsetType = UNSET
    enqueue_at: Instant | UnsetType = UNSET
    attempts: Int32 = 0
    max_attempts: Int32 = 0
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""


class StorageListAnswer(Answer, kw_only=True):
    """Of `storage/items.list` and `storage/scheduled.list`."""

    items: list[StorageItem] = []


class ImportRequest(Request, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    items: list[StorageItem] = []


class ImportAnswer(Answer, kw_only=True):
    items: list[StorageItem] = []


class StorageDeleteRequest(Request, kw_only=True):
    queue_name: str = ""
    partition: Int32 = 0
    ids: list[str] = []


class BackendsRequest(Request, kw_only=True):
    pass


class BackendInfo(Answer, kw_only=True):
    name: str = ""
    driver: str = ""
    affinity: float = 0.0
    healthy: bool = False
    details: str = ""
    partitions: Int32 = 0


class BackendsAnswer(Answer, kw_only=True):
    backends: list[BackendInfo] = []


# cluster.*


class ClusterInfoRequest(Request, kw_only=True):
    pivot: str = ""  # the name of a queue, or `name~number`
    limit: Int32 = 0


class InstanceInfo(Answer, kw_only=True):
    id: str = ""
    host: str = ""
    addresses: list[str] = []
    version: str = ""
    started_at: Instant | UnsetType = UNSET
    draining: bool = False
    backends: list[str] = []
    leader: bool = False


class LogicalQueueInfo(Answer, kw_only=True):
    queue_name: str = ""
    number: Int32 = 0
    instance: str = ""
    epoch: int = 0
    partitions: list[Int32] = []


class ClusterInfoAnswer(Answer, kw_only=True):
    instances: list[InstanceInfo] = []
    leader: str = ""
    logical_queues: list[LogicalQueueInfo] = []


class ClusterRouteRequest(Request, kw_only=True):
    queue_name: str = ""


class PartitionRoute(Answer, kw_only=True):
    partition: Int32 = 0
    instance: str = ""
    address: str = ""
    logical_queue: Int32 = 0
    epoch: int = 0


class ClusterRouteAnswer(Answer, kw_only=True):
    queue_name: str = ""
    partitions: list[PartitionRoute] = []
    addresses: list[str] = []  # of all instances


# config.*


class ConfigReloadRequest(Request, kw_only=True):
    pass


class ConfigReloadAnswer(Answer, kw_only=True):
    changes: list[str] = []  # a line each; empty if the file says what is in force


class Shape(NamedTuple):
    """What goes into a call and what comes out of it."""

    request: type[Request]
    answer: type[Answer]


SHAPES: Mapping[str, Shape] = {
    "queue.produce": Shape(ProduceRequest, ProduceAnswer),
    "queue.reserve": Shape(ReserveRequest, ReserveAnswer),
    "queue.lease": Shape(ReserveRequest, ReserveAnswer),
    "queue.complete": Shape(CompleteRequest, Envelope),
    "queue.retry": Shape(RetryRequest, Envelope),
    "queue.renew": Shape(RenewRequest, RenewAnswer),
    "queue.stats": Shape(StatsRequest, StatsAnswer),
    "queue.clear": Shape(ClearRequest, Envelope),
    "queue.reload": Shape(ReloadRequest, Envelope),
    "queue.pause": Shape(PauseRequest, Envelope),
    "queue.resume": Shape(PauseRequest, Envelope),
    "queues.create": Shape(CreateRequest, Envelope),
    "queues.update": Shape(UpdateRequest, Envelope),
    "queues.list": Shape(ListRequest, ListAnswer),
    "queues.info": Shape(InfoRequest, QueueInfo),
    "queues.delete": Shape(DeleteRequest, Envelope),
    "storage/items.list": Shape(StorageListRequest, StorageListAnswer),
    "storage/scheduled.list": Shape(StorageListRequest, StorageListAnswer),
    "storage/items.import": Shape(ImportRequest, ImportAnswer),
    "storage/items.delete": Shape(StorageDeleteRequest, Envelope),
    "storage.list": Shape(BackendsRequest, BackendsAnswer),
    "cluster.info": Shape(ClusterInfoRequest, ClusterInfoAnswer),
    "cluster.route": Shape(ClusterRouteRequest, ClusterRouteAnswer),
    "config.reload": Shape(ConfigReloadRequest, ConfigReloadAnswer),
}


def method_name(call: str) -> str:
    """The name of a call as a method of the gRPC service: `storage/items.list` is `StorageItemsList`."""
    return "".join(part.capitalize() for part in re.split(r"[./]", call))


encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
