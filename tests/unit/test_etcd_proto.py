"""The messages of etcd: the generated modules are those of the .proto files, and the calls are those of the services."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

from cluster import etcd_calls
from cluster.etcd_calls import Call
from cluster.etcd_proto import etcd_kv_pb2, etcd_rpc_pb2, generate

MODULES = {module.DESCRIPTOR.name: module.DESCRIPTOR for module in (etcd_kv_pb2, etcd_rpc_pb2)}
CALLS = [value for value in vars(etcd_calls).values() if isinstance(value, Call)]


def test_generated_modules_are_those_of_the_files(tmp_path: Path) -> None:
    """Running the compiler again gives the same descriptors."""
    made = tmp_path / "made.bin"
    generate.generate(f"--descriptor_set_out={made}")
    descriptors = FileDescriptorSet.FromString(made.read_bytes())
    assert [each.name for each in descriptors.file] == generate.SOURCES
    assert set(MODULES) == set(generate.SOURCES)
    for each in descriptors.file:
        for message in each.message_type:
            for field in message.field:
                field.ClearField("json_name")  # which the compiler writes into a descriptor set, and into no module
        assert type(each).FromString(MODULES[each.name].serialized_pb) == each


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.path)
def test_calls_are_those_of_the_services(call: Call[Message, Message]) -> None:
    """Each path names a method, and its messages are those of the method."""
    _, path, method = call.path.split("/")
    service = etcd_rpc_pb2.DESCRIPTOR.services_by_name[path.removeprefix("etcdserverpb.")]
    assert service.full_name == path
    described = service.methods_by_name[method]
    assert (described.input_type, described.output_type) == (call.request.DESCRIPTOR, call.reply.DESCRIPTOR)
