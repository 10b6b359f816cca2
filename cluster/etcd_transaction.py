"""A transaction as etcd takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster.etcd_proto import etcd_rpc_pb2 as rpc

# etcd takes 128 conditions or changes in a transaction by default, and a transaction within one counts towards both:
# 64 inner ones may have 64 changes each.
_FLAT = 128
_INNER = 64


def transaction(
    name: Callable[[str], bytes],
    expected: Mapping[str, int],
    puts: Mapping[str, bytes],
    deletes: Sequence[str],
    lease_id: int,
) -> rpc.TxnRequest:
    if len(expected) > _FLAT or len(puts) + len(deletes) > _INNER * _INNER:
        raise ValueError(f"a transaction has at most {_FLAT} expectations and {_INNER * _INNER} changes")
    compare = [
        rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=name(key), mod_revision=revision)
        for key, revision in expected.items()
    ]
    changes = [
        rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=name(key))) for key in dict.fromkeys(deletes)
    ]
    changes += [
        rpc.RequestOp(request_put=rpc.PutRequest(key=name(key), value=value, lease=lease_id))
        for key, value in puts.items()
    ]
    return rpc.TxnRequest(compare=compare, success=_nested(changes))


def _nested(changes: list[rpc.RequestOp]) -> list[rpc.RequestOp]:
    if len(changes) <= _FLAT:
        return changes
    parts = [changes[start : start + _INNER] for start in range(0, len(changes), _INNER)]
    return [rpc.RequestOp(request_txn=rpc.TxnRequest(success=part)) for part in parts]
