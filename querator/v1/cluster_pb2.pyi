import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterInfoRequest(_message.Message):
    __slots__ = ("pivot", "limit")
    PIVOT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    pivot: str
    limit: int
    def __init__(self, pivot: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ClusterInfoAnswer(_message.Message):
    __slots__ = ("instances", "leader", "logicalQueues")
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[InstanceInfo]
    leader: str
    logicalQueues: _containers.RepeatedCompositeFieldContainer[LogicalQueueInfo]
    def __init__(self, instances: _Optional[_Iterable[_Union[InstanceInfo, _Mapping]]] = ..., leader: _Optional[str] = ..., logicalQueues: _Optional[_Iterable[_Union[LogicalQueueInfo, _Mapping]]] = ...) -> None: ...

class InstanceInfo(_message.Message):
    __slots__ = ("id", "host", "addresses", "version", "startedAt", "draining", "backends", "leader")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTEDAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    version: str
    startedAt: _timestamp_pb2.Timestamp
    draining: bool
    backends: _containers.RepeatedScalarFieldContainer[str]
    leader: bool
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., startedAt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., draining: _Optional[bool] = ..., backends: _Optional[_Iterable[str]] = ..., leader: _Optional[bool] = ...) -> None: ...

class LogicalQueueInfo(_message.Message):
    __slots__ = ("queueName", "number", "instance", "epoch", "partitions")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    number: int
    instance: str
    epoch: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queueName: _Optional[str] = ..., number: _Optional[int] = ..., instance: _Optional[str] = ..., epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ClusterRouteRequest(_message.Message):
    __slots__ = ("queueName",)
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    def __init__(self, queueName: _Optional[str] = ...) -> None: ...

class ClusterRouteAnswer(_message.Message):
    __slots__ = ("queueName", "partitions", "addresses")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRoute]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queueName: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionRoute, _Mapping]]] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionRoute(_message.Message):
    __slots__ = ("partition", "instance", "address", "logicalQueue", "epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOGICALQUEUE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: int
    instance: str
    address: str
    logicalQueue: int
    epoch: int
    def __init__(self, partition: _Optional[int] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ..., logicalQueue: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...
