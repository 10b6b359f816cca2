"""The calls of etcd that we make, and what its errors mean."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message

from cluster.coordinator import CoordinationError
from cluster.etcd_proto import etcd_rpc_pb2 as rpc

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class Call(NamedTuple, Generic[Request, Reply]):
    path: str
    request: type[Request]
    reply: type[Reply]
    repeatable: bool  # whether doing it twice is the same as doing it once


RANGE = Call("/etcdserverpb.KV/Range", rpc.RangeRequest, rpc.RangeResponse, True)
TXN = Call("/etcdserverpb.KV/Txn", rpc.TxnRequest, rpc.TxnResponse, False)
COMPACT = Call("/etcdserverpb.KV/Compact", rpc.CompactionRequest, rpc.CompactionResponse, False)
WATCH = Call("/etcdserverpb.Watch/Watch", rpc.WatchRequest, rpc.WatchResponse, True)
# A grant of which the answer was lost is a lease that nobody keeps, and so ends.
GRANT = Call("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantRequest, rpc.LeaseGrantResponse, True)
REVOKE = Call(
    "/etcdserverpb.Lease/LeaseRevoke",
    rpc.LeaseRevokeRequest,
    rpc.LeaseRevokeResponse,
    True,
)
# A stream at etcd. One request that ends the stream and its one answer look on the wire like a plain call, and a plain
# call can be bounded in time and sent to another member.
KEEP_ALIVE = Call(
    "/etcdserverpb.Lease/LeaseKeepAlive",
    rpc.LeaseKeepAliveRequest,
    rpc.LeaseKeepAliveResponse,
    True,
)
AUTHENTICATE = Call(
    "/etcdserverpb.Auth/Authenticate",
    rpc.AuthenticateRequest,
    rpc.AuthenticateResponse,
    True,
)

_STALE_TOKEN = frozenset({"etcdserver: invalid auth token", "etcdserver: revision of auth store is old"})
# Said before anything was done.
_REFUSED = _STALE_TOKEN | {"etcdserver: no leader", "etcdserver: too many requests"}
_PASSING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class EtcdError(CoordinationError):
    """What etcd, or the way to it, said."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        self.details = details
        super().__init__(f"etcd: {details or code.name.lower()}")

    def is_of_token(self) -> bool:
        """The token has run out, or etcd was started again, or the users were changed: ask for a new one."""
        return self.details in _STALE_TOKEN

    def is_of_member(self) -> bool:
        """Another member may do better."""
        return self.code in _PASSING

    def may_repeat(self, call: Call[Request, Reply]) -> bool:
        return self.details in _REFUSED or (call.repeatable and self.is_of_member())

    def is_missing(self) -> bool:
        return self.code is grpc.StatusCode.NOT_FOUND

    def is_compacted(self) -> bool:
        return self.code is grpc.StatusCode.OUT_OF_RANGE
