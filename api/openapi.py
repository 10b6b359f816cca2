"""The OpenAPI document, made of the ``.proto`` descriptors and the table of calls."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from api.codec import MESSAGES, descriptor_of
from api.forms import JSON, PROTOBUF
from querator import wire
from querator.version import VERSION

_DURATION = r"^(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)?$"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    FieldDescriptor.TYPE_INT64: {**_INT64, "format": "int64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte", "contentEncoding": "base64", "pattern": _BASE64},
}
_FAILURES = {
    "400": "the request is invalid, or names what does not exist",
    "409": "the request does not fit what is there now",
    "429": "too many requests; try again",
    "453": "the request was understood, and cannot be done",
    "454": "try again: overloaded, timed out, stopping, or a partition fails",
    "455": "the body or its type cannot be read",
    "500": "internal error",
}


def make_document() -> dict[str, Any]:
    paths = {f"/v1/{name}": {"post": _operation(name, shape)} for name, shape in wire.SHAPES.items()}
    schemas = {name: _message_schema(descriptor_of(name)) for name in MESSAGES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Querator", "version": VERSION, "license": {"name": "Apache-2.0"}},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas},
    }


def _operation(name: str, shape: wire.Shape) -> dict[str, Any]:
    failures = {
        code: {"description": text, "content": {JSON: {"schema": _reference("Envelope")}}}
        for code, text in _FAILURES.items()
    }
    extended = {
        "name": "Querator-Extended",
        "in": "header",
        "required": False,
        "description": "1 adds the fields that public clients do not know to the answer",
        "schema": {"type": "string", "enum": ["0", "1"]},
    }
    return {
        "operationId": name.replace("/", "."),
        "tags": [name.partition(".")[0]],
        "parameters": [extended],
        "requestBody": {"required": False, "content": _content(shape.request.__name__)},
        "responses": {
            "200": {"description": "done", "content": _content(shape.answer.__name__)},
            **failures,
        },
    }


def _content(name: str) -> dict[str, Any]:
    return {JSON: {"schema": _reference(name)}, PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _message_schema(descriptor: Descriptor) -> dict[str, Any]:
    properties = {field.json_name: _field_schema(field) for field in descriptor.fields}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _field_schema(field: FieldDescriptor) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    schema = _value_schema(field)
    return {"type": "array", "items": schema} if field.is_repeated else schema


def _value_schema(field: FieldDescriptor) -> dict[str, Any]:
    if field.message_type is None:
        if field.name.endswith("Timeout"):
            return {"type": "string", "pattern": _DURATION}
        return dict(_SCALARS[field.type])
    if field.message_type.full_name == Timestamp.DESCRIPTOR.full_name:
        return {"type": "string", "format": "date-time"}
    return _reference(field.message_type.name)
