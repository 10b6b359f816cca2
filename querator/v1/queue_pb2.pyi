import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProduceRequest(_message.Message):
    __slots__ = ("queueName", "requestTimeout", "items")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    REQUESTTIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    requestTimeout: str
    items: _containers.RepeatedCompositeFieldContainer[ProduceItem]
    def __init__(self, queueName: _Optional[str] = ..., requestTimeout: _Optional[str] = ..., items: _Optional[_Iterable[_Union[ProduceItem, _Mapping]]] = ...) -> None: ...

class ProduceItem(_message.Message):
    __slots__ = ("encoding", "kind", "reference", "enqueueAt", "bytes", "utf8", "expireTimeout")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    ENQUEUEAT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    UTF8_FIELD_NUMBER: _ClassVar[int]
    EXPIRETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    encoding: str
    kind: str
    reference: str
    enqueueAt: _timestamp_pb2.Timestamp
    bytes: bytes
    utf8: str
    expireTimeout: str
    def __init__(self, encoding: _Optional[str] = ..., kind: _Optional[str] = ..., reference: _Optional[str] = ..., enqueueAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., bytes: _Optional[bytes] = ..., utf8: _Optional[str] = ..., expireTimeout: _Optional[str] = ...) -> None: ...

class ProduceAnswer(_message.Message):
    __slots__ = ("code", "codeText", "message", "details", "partition", "ids")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    CODETEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    code: int
    codeText: str
    message: str
    details: _containers.ScalarMap[str, str]
    partition: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[int] = ..., codeText: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[_Mapping[str, str]] = ..., partition: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("queueName", "batchSize", "clientId", "requestTimeout", "leaseTimeout")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    BATCHSIZE_FIELD_NUMBER: _ClassVar[int]
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    REQUESTTIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    batchSize: int
    clientId: str
    requestTimeout: str
    leaseTimeout: str
    def __init__(self, queueName: _Optional[str] = ..., batchSize: _Optional[int] = ..., clientId: _Optional[str] = ..., requestTimeout: _Optional[str] = ..., leaseTimeout: _Optional[str] = ...) -> None: ...

class ReservedItem(_message.Message):
    __slots__ = ("encoding", "kind", "reference", "id", "attempts", "leaseDeadline", "bytes", "createdAt")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LEASEDEADLINE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATEDAT_FIELD_NUMBER: _ClassVar[int]
    encoding: str
    kind: str
    reference: str
    id: str
    attempts: int
    leaseDeadline: _timestamp_pb2.Timestamp
    bytes: bytes
    createdAt: _timestamp_pb2.Timestamp
    def __init__(self, encoding: _Optional[str] = ..., kind: _Optional[str] = ..., reference: _Optional[str] = ..., id: _Optional[str] = ..., attempts: _Optional[int] = ..., leaseDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., bytes: _Optional[bytes] = ..., createdAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReserveAnswer(_message.Message):
    __slots__ = ("queueName", "partition", "items")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    items: _containers.RepeatedCompositeFieldContainer[ReservedItem]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., items: _Optional[_Iterable[_Union[ReservedItem, _Mapping]]] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("queueName", "partition", "requestTimeout", "ids")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REQUESTTIMEOUT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    requestTimeout: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., requestTimeout: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RetryRequest(_message.Message):
    __slots__ = ("queueName", "partition", "items")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    items: _containers.RepeatedCompositeFieldContainer[RetryItem]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., items: _Optional[_Iterable[_Union[RetryItem, _Mapping]]] = ...) -> None: ...

class RetryItem(_message.Message):
    __slots__ = ("id", "retryAt", "dead")
    ID_FIELD_NUMBER: _ClassVar[int]
    RETRYAT_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    id: str
    retryAt: _timestamp_pb2.Timestamp
    dead: bool
    def __init__(self, id: _Optional[str] = ..., retryAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dead: _Optional[bool] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("queueName", "partition", "ids", "leaseTimeout")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    leaseTimeout: str
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., leaseTimeout: _Optional[str] = ...) -> None: ...

class RenewedItem(_message.Message):
    __slots__ = ("id", "leaseDeadline")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASEDEADLINE_FIELD_NUMBER: _ClassVar[int]
    id: str
    leaseDeadline: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., leaseDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RenewAnswer(_message.Message):
    __slots__ = ("queueName", "partition", "items")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    items: _containers.RepeatedCompositeFieldContainer[RenewedItem]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., items: _Optional[_Iterable[_Union[RenewedItem, _Mapping]]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("queueName",)
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    def __init__(self, queueName: _Optional[str] = ...) -> None: ...

class StatsAnswer(_message.Message):
    __slots__ = ("queueName", "logicalQueues", "partial", "missing")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    logicalQueues: _containers.RepeatedCompositeFieldContainer[LogicalQueueStats]
    partial: bool
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queueName: _Optional[str] = ..., logicalQueues: _Optional[_Iterable[_Union[LogicalQueueStats, _Mapping]]] = ..., partial: _Optional[bool] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class LogicalQueueStats(_message.Message):
    __slots__ = ("produceWaiting", "leaseWaiting", "completeWaiting", "inFlight", "partitions")
    PRODUCEWAITING_FIELD_NUMBER: _ClassVar[int]
    LEASEWAITING_FIELD_NUMBER: _ClassVar[int]
    COMPLETEWAITING_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    produceWaiting: int
    leaseWaiting: int
    completeWaiting: int
    inFlight: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStats]
    def __init__(self, produceWaiting: _Optional[int] = ..., leaseWaiting: _Optional[int] = ..., completeWaiting: _Optional[int] = ..., inFlight: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionStats, _Mapping]]] = ...) -> None: ...

class PartitionStats(_message.Message):
    __slots__ = ("partition", "total", "totalLeased", "failures", "averageAge", "averageLeasedAge", "scheduled", "backend", "state", "epoch", "ready", "outbox", "oldestAge", "arrived", "completed")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOTALLEASED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    AVERAGEAGE_FIELD_NUMBER: _ClassVar[int]
    AVERAGELEASEDAGE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    OLDESTAGE_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    partition: int
    total: int
    totalLeased: int
    failures: int
    averageAge: str
    averageLeasedAge: str
    scheduled: int
    backend: str
    state: str
    epoch: int
    ready: int
    outbox: int
    oldestAge: str
    arrived: int
    completed: int
    def __init__(self, partition: _Optional[int] = ..., total: _Optional[int] = ..., totalLeased: _Optional[int] = ..., failures: _Optional[int] = ..., averageAge: _Optional[str] = ..., averageLeasedAge: _Optional[str] = ..., scheduled: _Optional[int] = ..., backend: _Optional[str] = ..., state: _Optional[str] = ..., epoch: _Optional[int] = ..., ready: _Optional[int] = ..., outbox: _Optional[int] = ..., oldestAge: _Optional[str] = ..., arrived: _Optional[int] = ..., completed: _Optional[int] = ...) -> None: ...

class ClearRequest(_message.Message):
    __slots__ = ("queueName", "scheduled", "queue", "destructive")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DESTRUCTIVE_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    scheduled: bool
    queue: bool
    destructive: bool
    def __init__(self, queueName: _Optional[str] = ..., scheduled: _Optional[bool] = ..., queue: _Optional[bool] = ..., destructive: _Optional[bool] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("queueName",)
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    def __init__(self, queueName: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("queueName", "produce", "reserve")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCE_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    produce: bool
    reserve: bool
    def __init__(self, queueName: _Optional[str] = ..., produce: _Optional[bool] = ..., reserve: _Optional[bool] = ...) -> None: ...
