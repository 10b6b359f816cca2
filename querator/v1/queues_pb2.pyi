import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetryPolicy(_message.Message):
    __slots__ = ("base", "factor", "max", "jitter")
    BASE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    base: str
    factor: float
    max: str
    jitter: float
    def __init__(self, base: _Optional[str] = ..., factor: _Optional[float] = ..., max: _Optional[str] = ..., jitter: _Optional[float] = ...) -> None: ...

class CreateRequest(_message.Message):
    __slots__ = ("queueName", "deadQueue", "reference", "leaseTimeout", "expireTimeout", "maxAttempts", "requestedPartitions", "namespace", "retryPolicy", "logicalQueues")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    DEADQUEUE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    EXPIRETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAXATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTEDPARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    RETRYPOLICY_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUES_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    deadQueue: str
    reference: str
    leaseTimeout: str
    expireTimeout: str
    maxAttempts: int
    requestedPartitions: int
    namespace: str
    retryPolicy: RetryPolicy
    logicalQueues: str
    def __init__(self, queueName: _Optional[str] = ..., deadQueue: _Optional[str] = ..., reference: _Optional[str] = ..., leaseTimeout: _Optional[str] = ..., expireTimeout: _Optional[str] = ..., maxAttempts: _Optional[int] = ..., requestedPartitions: _Optional[int] = ..., namespace: _Optional[str] = ..., retryPolicy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., logicalQueues: _Optional[str] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("queueName", "deadQueue", "reference", "leaseTimeout", "expireTimeout", "maxAttempts", "requestedPartitions", "namespace", "retryPolicy", "logicalQueues")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    DEADQUEUE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    EXPIRETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAXATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTEDPARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    RETRYPOLICY_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUES_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    deadQueue: str
    reference: str
    leaseTimeout: str
    expireTimeout: str
    maxAttempts: int
    requestedPartitions: int
    namespace: str
    retryPolicy: RetryPolicy
    logicalQueues: str
    def __init__(self, queueName: _Optional[str] = ..., deadQueue: _Optional[str] = ..., reference: _Optional[str] = ..., leaseTimeout: _Optional[str] = ..., expireTimeout: _Optional[str] = ..., maxAttempts: _Optional[int] = ..., requestedPartitions: _Optional[int] = ..., namespace: _Optional[str] = ..., retryPolicy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., logicalQueues: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("pivot", "limit", "namespace")
    PIVOT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    pivot: str
    limit: int
    namespace: str
    def __init__(self, pivot: _Optional[str] = ..., limit: _Optional[int] = ..., namespace: _Optional[str] = ...) -> None: ...

class ListAnswer(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[QueueInfo]
    def __init__(self, items: _Optional[_Iterable[_Union[QueueInfo, _Mapping]]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ("queueName",)
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    def __init__(self, queueName: _Optional[str] = ...) -> None: ...

class RetryPolicyInfo(_message.Message):
    __slots__ = ("base", "factor", "max", "jitter")
    BASE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    base: str
    factor: float
    max: str
    jitter: float
    def __init__(self, base: _Optional[str] = ..., factor: _Optional[float] = ..., max: _Optional[str] = ..., jitter: _Optional[float] = ...) -> None: ...

class QueueInfo(_message.Message):
    __slots__ = ("queueName", "createdAt", "updatedAt", "deadQueue", "reference", "leaseTimeout", "expireTimeout", "maxAttempts", "requestedPartitions", "partitions", "namespace", "retryPolicy", "producePaused", "reservePaused", "logicalQueues", "partial", "missing")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    CREATEDAT_FIELD_NUMBER: _ClassVar[int]
    UPDATEDAT_FIELD_NUMBER: _ClassVar[int]
    DEADQUEUE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    EXPIRETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAXATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTEDPARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    RETRYPOLICY_FIELD_NUMBER: _ClassVar[int]
    PRODUCEPAUSED_FIELD_NUMBER: _ClassVar[int]
    RESERVEPAUSED_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    createdAt: _timestamp_pb2.Timestamp
    updatedAt: _timestamp_pb2.Timestamp
    deadQueue: str
    reference: str
    leaseTimeout: str
    expireTimeout: str
    maxAttempts: int
    requestedPartitions: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionInfo]
    namespace: str
    retryPolicy: RetryPolicyInfo
    producePaused: bool
    reservePaused: bool
    logicalQueues: str
    partial: bool
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queueName: _Optional[str] = ..., createdAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updatedAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadQueue: _Optional[str] = ..., reference: _Optional[str] = ..., leaseTimeout: _Optional[str] = ..., expireTimeout: _Optional[str] = ..., maxAttempts: _Optional[int] = ..., requestedPartitions: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionInfo, _Mapping]]] = ..., namespace: _Optional[str] = ..., retryPolicy: _Optional[_Union[RetryPolicyInfo, _Mapping]] = ..., producePaused: _Optional[bool] = ..., reservePaused: _Optional[bool] = ..., logicalQueues: _Optional[str] = ..., partial: _Optional[bool] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionInfo(_message.Message):
    __slots__ = ("partition", "backend", "state", "epoch", "logicalQueue", "ready", "leased", "scheduled", "outbox", "instance", "address")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    backend: str
    state: str
    epoch: int
    logicalQueue: int
    ready: int
    leased: int
    scheduled: int
    outbox: int
    instance: str
    address: str
    def __init__(self, partition: _Optional[int] = ..., backend: _Optional[str] = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., logicalQueue: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., scheduled: _Optional[int] = ..., outbox: _Optional[int] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("queueName", "force")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    force: bool
    def __init__(self, queueName: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...
