"""The wire types and the .proto files say the same, and the generated modules are those of the files."""

from __future__ import annotations

import types
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import UnsetType

from api.codec import MESSAGES, descriptor_of, json_reader, protobuf_reader, write_protobuf
from api.proto import generate
from querator import wire

STRUCTS = {
    name: value
    for name, value in vars(wire).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value not in {wire.Request, wire.Answer}
}
SCALARS = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_DOUBLE: float,
    FieldDescriptor.TYPE_INT64: int,
    FieldDescriptor.TYPE_INT32: wire.Int32,
}


def without_unset(annotation: Any) -> tuple[Any, bool]:
    """The type, and whether it may be absent."""
    if get_origin(annotation) in {Union, types.UnionType}:
        [inner] = [argument for argument in get_args(annotation) if argument is not UnsetType]
        return inner, True
    return annotation, False


def expected(field: FieldDescriptor) -> Any:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return dict[str, str]
    if message is None:
        inner = SCALARS[field.type]
    elif message.full_name == Timestamp.DESCRIPTOR.full_name:
        inner = wire.Instant
    else:
        inner = STRUCTS[message.name]
    return types.GenericAlias(list, (inner,)) if field.is_repeated else inner


def test_same_names() -> None:
    """Every message has its type, and every type its message."""
    assert set(STRUCTS) == set(MESSAGES)


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_same_fields(name: str) -> None:
    """The same names in JSON, the same types, and presence where protobuf has presence."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(STRUCTS[name])}
    descriptor = descriptor_of(name)
    assert set(fields) == {field.json_name for field in descriptor.fields}
    for field in descriptor.fields:
        annotation, may_be_absent = without_unset(fields[field.json_name].type)
        assert annotation == expected(field), field.json_name
        has_presence = field.has_presence and not field.is_repeated
        required = fields[field.json_name].required
        assert required or may_be_absent == has_presence, field.json_name


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_requests_refuse_what_they_do_not_know(name: str) -> None:
    """Requests forbid unknown fields and answers skip them; both omit zero values."""
    struct = STRUCTS[name]
    assert struct.__struct_config__.forbid_unknown_fields == issubclass(struct, wire.Request)
    assert struct.__struct_config__.omit_defaults


# Numbers and types of the public client's schema: these must never change.
PUBLIC: dict[str, dict[str, tuple[int, str]]] = {
    "ProduceRequest": {"queueName": (1, "string"), "requestTimeout": (2, "string"), "items": (3, "message")},
    "ProduceItem": {
        "encoding": (1, "string"),
        "kind": (2, "string"),
        "reference": (3, "string"),
        "enqueueAt": (4, "message"),
        "bytes": (5, "bytes"),
        "utf8": (6, "string"),
    },
    "ReserveRequest": {
        "queueName": (1, "string"),
        "batchSize": (2, "int32"),
        "clientId": (3, "string"),
        "requestTimeout": (4, "string"),
    },
    "ReserveAnswer": {"queueName": (1, "string"), "partition": (2, "int32"), "items": (3, "message")},
    "ReservedItem": {
        "encoding": (1, "string"),
        "kind": (2, "string"),
        "reference": (3, "string"),
        "id": (4, "string"),
        "attempts": (5, "int32"),
        "leaseDeadline": (6, "message"),
        "bytes": (7, "bytes"),
    },
    "CompleteRequest": {
        "queueName": (1, "string"),
        "partition": (2, "int32"),
        "requestTimeout": (3, "string"),
        "ids": (4, "string"),
    },
    "RetryRequest": {"queueName": (1, "string"), "partition": (2, "int32"), "items": (3, "message")},
    "RetryItem": {"id": (1, "string"), "retryAt": (2, "message"), "dead": (3, "bool")},
    "StatsAnswer": {"queueName": (1, "string"), "logicalQueues": (2, "message")},
    "LogicalQueueStats": {
        "produceWaiting": (6, "int32"),
        "leaseWaiting": (7, "int32"),
        "completeWaiting": (8, "int32"),
        "inFlight": (10, "int32"),
        "partitions": (11, "message"),
    },
    "PartitionStats": {
        "partition": (1, "int32"),
        "total": (2, "int32"),
        "totalLeased": (3, "int32"),
        "failures": (4, "int32"),
        "averageAge": (5, "string"),
        "averageLeasedAge": (6, "string"),
        "scheduled": (7, "int32"),
    },
    "ClearRequest": {
        "queueName": (1, "string"),
        "scheduled": (3, "bool"),
        "queue": (4, "bool"),
        "destructive": (5, "bool"),
    },
    "QueueInfo": {
        "queueName": (1, "string"),
        "createdAt": (2, "message"),
        "updatedAt": (3, "message"),
        "deadQueue": (4, "string"),
        "reference": (5, "string"),
        "leaseTimeout": (6, "string"),
        "expireTimeout": (7, "string"),
        "maxAttempts": (8, "int32"),
        "requestedPartitions": (9, "int32"),
        "partitions": (10, "message"),
        "namespace": (11, "string"),
    },
    "ListRequest": {"pivot": (2, "string"), "limit": (3, "int32"), "namespace": (4, "string")},
    "DeleteRequest": {"queueName": (1, "string"), "force": (2, "bool")},
    "StorageListRequest": {
        "queueName": (1, "string"),
        "partition": (2, "int32"),
        "pivot": (3, "string"),
        "limit": (4, "int32"),
    },
    "StorageItem": {
        "id": (1, "string"),
        "source_id": (2, "string"),
        "isLeased": (3, "bool"),
        "leaseDeadline": (4, "message"),
        "expireDeadline": (5, "message"),
        "createdAt": (7, "message"),
        "enqueueAt": (9, "message"),
        "attempts": (10, "int32"),
        "maxAttempts": (11, "int32"),
        "reference": (12, "string"),
        "encoding": (13, "string"),
        "kind": (14, "string"),
        "payload": (15, "bytes"),
    },
    "ImportRequest": {"queueName": (1, "string"), "partition": (2, "int32"), "items": (3, "message")},
    "ImportAnswer": {"items": (2, "message")},
    "StorageDeleteRequest": {"queueName": (1, "string"), "partition": (2, "int32"), "ids": (3, "string")},
    "Envelope": {"code": (1, "int32"), "codeText": (2, "string"), "message": (3, "string"), "details": (4, "message")},
}
TYPE_NAMES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_numbers_and_types(name: str) -> None:
    """What the public client knows has its number and type; everything else has a number from 100 on."""
    fields = descriptor_of(name).fields
    public = {field.name: (field.number, TYPE_NAMES.get(field.type)) for field in fields if field.number < 100}
    assert public == PUBLIC[name]


def test_create_and_update_are_queue_info() -> None:
    """The public client sends its queue info to create and update."""
    info = {field.number: field.name for field in MESSAGES["QueueInfo"].DESCRIPTOR.fields}
    for name in ("CreateRequest", "UpdateRequest"):
        for field in descriptor_of(name).fields:
            assert info[field.number] == field.name


def test_generated_modules_are_those_of_the_files(tmp_path: Path) -> None:
    """Running the compiler again gives the same descriptors."""
    made = tmp_path / "made.bin"
    generate.generate(f"--descriptor_set_out={made}")
    descriptors = FileDescriptorSet.FromString(made.read_bytes())
    assert {each.name for each in descriptors.file} == set(generate.SOURCES)
    for each in descriptors.file:
        module = import_module(each.name.removesuffix(".proto").replace("/", ".") + "_pb2")
        committed = type(each).FromString(module.DESCRIPTOR.serialized_pb)
        assert committed == _without_json_defaults(each, committed)


def test_the_service_is_that_of_the_table_of_calls() -> None:
    """`make proto` would write the same service: a method for each call, and the stream."""
    assert generate.SERVICE.read_text() == generate.make_service()


def _without_json_defaults(made: Any, committed: Any) -> Any:
    """The compiler writes every json_name into a descriptor set, and into modules only those that were given."""
    for message, kept in zip(made.message_type, committed.message_type, strict=True):
        for part, other in [(message, kept), *zip(message.nested_type, kept.nested_type, strict=True)]:
            for field, kept_field in zip(part.field, other.field, strict=True):
                if not kept_field.HasField("json_name"):
                    field.ClearField("json_name")
    return made


def test_json_and_protobuf_read_the_same() -> None:
    """One request in both forms is one value."""
    request = wire.UpdateRequest(queue_name="q", max_attempts=0, retry_policy=wire.RetryPolicy(base="1s", factor=0.0))
    message = MESSAGES["UpdateRequest"](queueName="q", maxAttempts=0, retryPolicy={"base": "1s", "factor": 0.0})
    assert json_reader(wire.UpdateRequest)(wire.encode(request)) == request
    assert protobuf_reader(wire.UpdateRequest)(message.SerializeToString()) == request


def test_answers_are_written_in_protobuf() -> None:
    """Nested parts, instants, maps and numbers arrive; zero values take no room."""
    instant = datetime.fromisoformat("2027-01-15T08:00:00.123+00:00")
    answer = wire.ReserveAnswer(queue_name="q", partition=3, items=[wire.ReservedItem("i", instant, 2, b"x")])
    message: Any = MESSAGES["ReserveAnswer"].FromString(write_protobuf(answer))
    assert message.items[0].leaseDeadline.ToMilliseconds() == 1_800_000_000_123
    assert (message.partition, message.items[0].id, message.items[0].attempts) == (3, "i", 2)
    assert write_protobuf(wire.Envelope()) == b""
    envelope: Any = MESSAGES["Envelope"].FromString(write_protobuf(wire.Envelope(code=400, details={"a": "b"})))
    assert dict(envelope.details) == {"a": "b"}


def test_annotated_types_are_what_they_say() -> None:
    """Numbers of 32 bits are bounded in JSON as they are in protobuf."""
    assert get_origin(wire.Int32) is Annotated
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"batch_size":2147483648}', type=wire.ReserveRequest)
