from querator.v1 import cluster_pb2 as _cluster_pb2
from querator.v1 import config_pb2 as _config_pb2
from querator.v1 import consume_pb2 as _consume_pb2
from querator.v1 import envelope_pb2 as _envelope_pb2
from querator.v1 import queue_pb2 as _queue_pb2
from querator.v1 import queues_pb2 as _queues_pb2
from querator.v1 import storage_pb2 as _storage_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
