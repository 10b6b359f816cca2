"""The small records beside the blocks: the layout of their keys and values, and of the summary.

    L lease id             LeaseRecords    leases that were granted together, by the id of the first
    D block id             set of slots    the slots of a block that are done, until all are
    S due time, sequence   Item            a scheduled item
    O sequence             OutboxEntry     an item on its way to another queue
    R partition uid        sequence        the last outbox entry received from that partition

Numbers are 8 bytes, big end first, so that the order of keys is the order of numbers. Values of structs are msgpack
arrays, to which fields may only be added at the end, with a default.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from querator.items import Item

LEASE = b"L"
DONE = b"D"
SCHEDULED = b"S"
OUTBOX = b"O"
RECEIVED = b"R"


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def key(prefix: bytes, number: int) -> bytes:
    return prefix + _number(number)


def key_number(record_key: bytes) -> int:
    """The last number of a key."""
    return int.from_bytes(record_key[-8:], "big")


def scheduled_key(due_at_ms: int, sequence: int) -> bytes:
    return SCHEDULED + _number(due_at_ms) + _number(sequence)


def due_at(record_key: bytes) -> int:
    """The due time of a scheduled item's key, in ms."""
    return int.from_bytes(record_key[1:9], "big")


def scheduled_id(record_key: bytes) -> str:
    """The id by which a scheduled item is shown."""
    return record_key[1:].hex()


def all_of(prefix: bytes) -> tuple[bytes, bytes]:
    """Start and stop of a scan over one kind of record."""
    return prefix, bytes([prefix[0] + 1])


class LeaseRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    client_id: str
    deadline: int  # ms
    slots: list[tuple[int, int, bytes]]  # block id, items in the block, leased slots


LeaseRecords: TypeAlias = list[LeaseRecord]


class OutboxEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    target: str
    item: Item


class Summary(msgspec.Struct, array_like=True, gc=False):
    """What is known of a partition without reading it; written with every commit."""

    last_block_id: int = 0  # the highest ever given
    head_block_id: int = 0  # no block below it has a ready item
    sequence: int = 0  # the highest ever given: of leases, scheduled items and outbox entries
    items: int = 0  # ready and leased
    blocks: int = 0
    block_bytes: int = 0
    scheduled: int = 0
    outbox: int = 0
    ready_at_sum: int = 0  # over ready and leased items, the ms at which they became ready


encode = msgspec.msgpack.Encoder().encode
decode_leases = msgspec.msgpack.Decoder(LeaseRecords).decode
decode_outbox = msgspec.msgpack.Decoder(OutboxEntry).decode
decode_summary = msgspec.msgpack.Decoder(Summary).decode
