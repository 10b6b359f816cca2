"""Between bytes and the types of `querator.wire`: JSON by msgspec, protobuf by the generated messages."""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import UNSET, UnsetType

from querator import wire
from querator.errors import ContentError
from querator.v1 import cluster_pb2, config_pb2, envelope_pb2, queue_pb2, queues_pb2, storage_pb2

_MODULES = (envelope_pb2, queue_pb2, queues_pb2, storage_pb2, cluster_pb2, config_pb2)
MESSAGES: dict[str, type[Message]] = {
    name: getattr(module, name) for module in _MODULES for name in module.DESCRIPTOR.message_types_by_name
}


def descriptor_of(name: str) -> Descriptor:
    """Of a message by its name, which is that of its type in `querator.wire`."""
    return cast("Descriptor", MESSAGES[name].DESCRIPTOR)


_CONSTANT = "body is invalid"
_MAX_DETAILS = 400
_decode_any = msgspec.json.Decoder().decode


def json_reader(request: type[wire.Request]) -> Callable[[bytes], Any]:
    """Reads JSON straight into the type; only what it does not know is looked at twice."""
    decode = msgspec.json.Decoder(request).decode
    descriptor = descriptor_of(request.__name__)

    def read(body: bytes) -> Any:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            return _read_again(body, decode, descriptor, error)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ContentError(_CONSTANT, f"it is not JSON: {_short(error)}") from None
        except RecursionError:
            raise ContentError(_CONSTANT, "it is nested too deeply") from None

    return read


def _read_again(
    body: bytes, decode: Callable[[bytes], Any], descriptor: Descriptor, first: msgspec.ValidationError
) -> Any:
    """The slow path: the original names of the fields are accepted in place of those of JSON."""
    try:
        value = _decode_any(body)
        if not _rename(value, descriptor):
            raise ContentError(_CONSTANT, _short(first))
        return decode(wire.encode(value))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ContentError(_CONSTANT, _short(error)) from None
    except RecursionError:
        raise ContentError(_CONSTANT, "it is nested too deeply") from None


def _short(error: Exception) -> str:
    """What is wrong, without giving a long name in the body back at full length."""
    text = str(error)
    return text if len(text) <= _MAX_DETAILS else f"{text[:_MAX_DETAILS]}…"


def _rename(value: Any, descriptor: Descriptor) -> bool:
    """Give fields with their original name the name of JSON, in place; whether there were any."""
    if not isinstance(value, dict):
        return False
    renamed = False
    for field in descriptor.fields:
        if field.name != field.json_name and field.name in value:
            if field.json_name in value:
                raise ContentError(_CONSTANT, f"'{field.name}' and '{field.json_name}' are the same field")
            value[field.json_name] = value.pop(field.name)
            renamed = True
        if field.message_type is not None and field.json_name in value:
            inner = value[field.json_name]
            for part in inner if isinstance(inner, list) else [inner]:
                renamed = _rename(part, field.message_type) or renamed
    return renamed


def protobuf_reader(request: type[wire.Request]) -> Callable[[bytes], Any]:
    """Reads protobuf into the type. Fields that we do not know are skipped, as protobuf does."""
    message_type = MESSAGES[request.__name__]
    convert = message_reader(request)

    def read(body: bytes) -> Any:
        message = message_type()
        try:
            message.ParseFromString(body)
            return convert(message)
        except (DecodeError, RecursionError):
            raise ContentError(_CONSTANT, "it is not a protobuf message of this call") from None

    return read


def message_reader(struct: type[msgspec.Struct]) -> Callable[[Message], Any]:
    """Makes the type of its message, which may be a part of a larger one."""
    readers: dict[int, tuple[str, Callable[[Any], Any] | None]] = {}
    for name, field, inner in _pairs(struct, descriptor_of(struct.__name__)):
        readers[field.number] = (name, _value_reader(field, inner))

    def read(message: Message) -> Any:
        values = {}
        for field, value in message.ListFields():
            name, convert = readers[field.number]
            values[name] = value if convert is None else convert(value)
        return struct(**values)

    return read


def _value_reader(field: FieldDescriptor, inner: type[msgspec.Struct] | None) -> Callable[[Any], Any] | None:
    if field.message_type is not None and field.message_type.full_name == Timestamp.DESCRIPTOR.full_name:
        return lambda value: _read_instant(field.json_name, value)
    if inner is not None:
        read = message_reader(inner)
        return (lambda values: [read(value) for value in values]) if field.is_repeated else read
    return list if field.is_repeated else None


def _read_instant(name: str, value: Timestamp) -> datetime:
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ContentError(_CONSTANT, f"'{name}' is not an instant between the years 1 and 9999") from None


def write_protobuf(answer: msgspec.Struct) -> bytes:
    return _WRITERS[type(answer)](answer).SerializeToString()


def write_message(answer: msgspec.Struct) -> Message:
    """An answer as a part of a larger message."""
    return _WRITERS[type(answer)](answer)


def _struct_writer(struct: type[msgspec.Struct]) -> Callable[[Any], Message]:
    message_type = MESSAGES[struct.__name__]
    writers = [
        (name, field.name, _value_writer(field, inner))
        for name, field, inner in _pairs(struct, descriptor_of(struct.__name__))
    ]

    def write(value: Any) -> Message:
        values = {}
        for name, proto_name, convert in writers:
            part = getattr(value, name)
            if part is not UNSET:
                values[proto_name] = part if convert is None else convert(part)
        return message_type(**values)

    return write


def _value_writer(field: FieldDescriptor, inner: type[msgspec.Struct] | None) -> Callable[[Any], Any] | None:
    if field.message_type is not None and field.message_type.full_name == Timestamp.DESCRIPTOR.full_name:
        return _write_instant
    if inner is not None:
        write = _struct_writer(inner)
        return (lambda values: [write(value) for value in values]) if field.is_repeated else write
    return None


def _write_instant(value: datetime) -> Timestamp:
    instant = Timestamp()
    instant.FromDatetime(value)
    return instant


def _pairs(
    struct: type[msgspec.Struct], descriptor: Descriptor
) -> list[tuple[str, FieldDescriptor, type[msgspec.Struct] | None]]:
    """Each attribute of the type with the field of the message, and the type of its parts if it has any."""
    by_json_name = {field.json_name: field for field in descriptor.fields}
    return [
        (field.name, by_json_name[field.encode_name], inner_struct(field.type))
        for field in msgspec.structs.fields(struct)
    ]


def inner_struct(annotation: Any) -> type[msgspec.Struct] | None:
    """The Struct within ``list[T]``, ``T | UnsetType`` or ``Annotated[T, …]``, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    if get_origin(annotation) in {list, Union, types.UnionType, Annotated}:
        for argument in get_args(annotation):
            if argument is not UnsetType and (found := inner_struct(argument)) is not None:
                return found
    return None


_WRITERS: dict[type[msgspec.Struct], Callable[[Any], Message]] = {
    answer: _struct_writer(answer)
    for answer in {cast("type[msgspec.Struct]", shape.answer) for shape in wire.SHAPES.values()} | {wire.Envelope}
}
