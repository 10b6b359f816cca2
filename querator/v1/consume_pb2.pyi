import datetime

from querator.v1 import envelope_pb2 as _envelope_pb2
from querator.v1 import queue_pb2 as _queue_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConsumeRequest(_message.Message):
    __slots__ = ("open", "calls")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    open: ConsumeOpen
    calls: _containers.RepeatedCompositeFieldContainer[ConsumeCall]
    def __init__(self, open: _Optional[_Union[ConsumeOpen, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[ConsumeCall, _Mapping]]] = ...) -> None: ...

class ConsumeOpen(_message.Message):
    __slots__ = ("queueName", "clientId", "batchSize", "maxInFlight", "leaseTimeout", "releaseOnClose", "held")
    QUEUENAME_FIELD_NUMBER: _ClassVar[int]
    CLIENTID_FIELD_NUMBER: _ClassVar[int]
    BATCHSIZE_FIELD_NUMBER: _ClassVar[int]
    MAXINFLIGHT_FIELD_NUMBER: _ClassVar[int]
    LEASETIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RELEASEONCLOSE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    queueName: str
    clientId: str
    batchSize: int
    maxInFlight: int
    leaseTimeout: str
    releaseOnClose: bool
    held: _containers.RepeatedCompositeFieldContainer[ConsumeHeld]
    def __init__(self, queueName: _Optional[str] = ..., clientId: _Optional[str] = ..., batchSize: _Optional[int] = ..., maxInFlight: _Optional[int] = ..., leaseTimeout: _Optional[str] = ..., releaseOnClose: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[ConsumeHeld, _Mapping]]] = ...) -> None: ...

class ConsumeHeld(_message.Message):
    __slots__ = ("partition", "ids", "leaseDeadline")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LEASEDEADLINE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    leaseDeadline: _timestamp_pb2.Timestamp
    def __init__(self, partition: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., leaseDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ConsumeCall(_message.Message):
    __slots__ = ("sequence", "complete", "retry", "renew", "maxInFlight")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    MAXINFLIGHT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    complete: _queue_pb2.CompleteRequest
    retry: _queue_pb2.RetryRequest
    renew: _queue_pb2.RenewRequest
    maxInFlight: int
    def __init__(self, sequence: _Optional[int] = ..., complete: _Optional[_Union[_queue_pb2.CompleteRequest, _Mapping]] = ..., retry: _Optional[_Union[_queue_pb2.RetryRequest, _Mapping]] = ..., renew: _Optional[_Union[_queue_pb2.RenewRequest, _Mapping]] = ..., maxInFlight: _Optional[int] = ...) -> None: ...

class ConsumeAnswer(_message.Message):
    __slots__ = ("reserved", "acks")
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    reserved: _queue_pb2.ReserveAnswer
    acks: _containers.RepeatedCompositeFieldContainer[ConsumeAck]
    def __init__(self, reserved: _Optional[_Union[_queue_pb2.ReserveAnswer, _Mapping]] = ..., acks: _Optional[_Iterable[_Union[ConsumeAck, _Mapping]]] = ...) -> None: ...

class ConsumeAck(_message.Message):
    __slots__ = ("sequence", "outcome", "leaseDeadline")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LEASEDEADLINE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    outcome: _envelope_pb2.Envelope
    leaseDeadline: _timestamp_pb2.Timestamp
    def __init__(self, sequence: _Optional[int] = ..., outcome: _Optional[_Union[_envelope_pb2.Envelope, _Mapping]] = ..., leaseDeadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
