import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StorageListRequest(_message.Message):
    __slots__ = ("queueName", "partition", "pivot", "limit")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PIVOT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    pivot: str
    limit: int
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., pivot: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class StorageListAnswer(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StorageItem]
    def __init__(self, items: _Optional[_Iterable[_Union[StorageItem, _Mapping]]] = ...) -> None: ...

class StorageItem(_message.Message):
    __slots__ = ("id", "source_id", "isLeased", "leaseDeadline", "expireDeadline", "createdAt", "enqueueAt", "attempts", "maxAttempts", "reference", "encoding", "kind", "payload")
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ISLEASED_FIELD_NUMBER: _ClassVar[int]
    LEASEDEADLINE_FIELD_NUMBER: _ClassVar[int]
    EXPIREDEADLINE_FIELD_NUMBER: _ClassVar[int]
    CREATEDAT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUEAT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAXATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    id: str
    source_id: str
    isLeased: bool
    leaseDeadline: _timestamp_pb2.Timestamp
    expireDeadline: _timestamp_pb2.Timestamp
    createdAt: _timestamp_pb2.Timestamp
    enqueueAt: _timestamp_pb2.Timestamp
    attempts: int
    maxAttempts: int
    reference: str
    encoding: str
    kind: str
    payload: bytes
    def __init__(self, id: _Optional[str] = ..., source_id: _Optional[str] = ..., isLeased: _Optional[bool] = ..., leaseDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expireDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., createdAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., enqueueAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., maxAttempts: _Optional[int] = ..., reference: _Optional[str] = ..., encoding: _Optional[str] = ..., kind: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ImportRequest(_message.Message):
    __slots__ = ("queueName", "partition", "items")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    items: _containers.RepeatedCompositeFieldContainer[StorageItem]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., items: _Optional[_Iterable[_Union[StorageItem, _Mapping]]] = ...) -> None: ...

class ImportAnswer(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StorageItem]
    def __init__(self, items: _Optional[_Iterable[_Union[StorageItem, _Mapping]]] = ...) -> None: ...

class StorageDeleteRequest(_message.Message):
    __slots__ = ("queueName", "partition", "ids")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partition: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queueName: _Optional[str] = ..., partition: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BackendsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackendsAnswer(_message.Message):
    __slots__ = ("backends",)
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    backends: _containers.RepeatedCompositeFieldContainer[BackendInfo]
    def __init__(self, backends: _Optional[_Iterable[_Union[BackendInfo, _Mapping]]] = ...) -> None: ...

class BackendInfo(_message.Message):
    __slots__ = ("name", "driver", "affinity", "healthy", "details", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    driver: str
    affinity: float
    healthy: bool
    details: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., driver: _Optional[str] = ..., affinity: _Optional[float] = ..., healthy: _Optional[bool] = ..., details: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...
