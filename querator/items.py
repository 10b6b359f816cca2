"""An item, the block it is stored in, and the id by which a client names one hand-out of it."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

import msgspec

from querator.errors import InvalidRequest

NEVER_MS = 2**62  # the expire deadline of an item that does not expire

MAX_SLOTS = 1 << 12  # of a block
_MAX_ATTEMPT = 0xFFFF  # as far as an id tells; attempts above look alike

# Block id, slot, attempt; in hexadecimal of fixed width, so that the order of text is the order of places.
_ID = re.compile(r"[0-7][0-9a-f]{15}[0-9a-f]{3}[0-9a-f]{4}", re.ASCII)
_BLOCK_WIDTH = 16


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a dead item came from, and why."""

    queue_name: str
    id: str
    reason: str  # "attempts", "expired" or "rejected"
    attempts: int
    died_at: int  # ms


class Item(msgspec.Struct, array_like=True, gc=False):
    """One unit of work, as it is stored. Fields may only ever be added at the end, with a default.

    A freshly produced item says nothing of its times: it was created when its block was, and expires with it.
    """

    payload: bytes
    encoding: str = ""
    kind: str = ""
    reference: str = ""
    attempts: int = 0  # hand-outs that ended before the item came to this block
    created_at: int = 0  # ms; 0: the block's time
    expire_at: int = 0  # ms; 0: the block's expire deadline; NEVER_MS: does not expire
    origin: Origin | None = None


class BlockBody(msgspec.Struct, array_like=True, gc=False):
    """The stored value of a block."""

    expire_at: int  # ms; of the items that name none; NEVER_MS: they do not expire
    items: list[Item]


encode_block = msgspec.msgpack.Encoder().encode
decode_block = msgspec.msgpack.Decoder(BlockBody).decode
encode_item = msgspec.msgpack.Encoder().encode
decode_item = msgspec.msgpack.Decoder(Item).decode


class Place(NamedTuple):
    """Where an item is, and which hand-out of it is meant."""

    block_id: int
    slot: int
    attempt: int


def format_id(block_id: int, slot: int, attempt: int) -> str:
    return f"{block_id:016x}{slot:03x}{min(attempt, _MAX_ATTEMPT):04x}"


# The part of an id behind the block, for the first hand-out: almost all that ever come.
_FIRST_HAND_OUTS = [f"{slot:03x}0001" for slot in range(MAX_SLOTS)]
_SLOT_OF_FIRST = {text: slot for slot, text in enumerate(_FIRST_HAND_OUTS)}


def format_ids(block_id: int, start: int, items: list[Item], *, first: bool) -> list[str]:
    """The ids of the present hand-out of neighbouring items; ``first`` if it is known to be the first of all."""
    prefix = f"{block_id:016x}"
    if first:
        return [prefix + text for text in _FIRST_HAND_OUTS[start : start + len(items)]]
    return [format_id(block_id, slot, item.attempts + 1) for slot, item in enumerate(items, start)]


def parse_id(item_id: str) -> Place:
    if _ID.fullmatch(item_id) is None:
        raise InvalidRequest("id is invalid", f"'{item_id[:64]}' is not the id of an item")
    return Place(int(item_id[:16], 16), int(item_id[16:19], 16), int(item_id[19:], 16))


# Slots of one block, as ids name them: neighbours in their first hand-out, or each with its attempt.
NamedSlots: TypeAlias = range | dict[int, int]


def parse_ids(ids: list[str]) -> dict[int, NamedSlots]:
    """What the ids name, by block. Refuses an id that is there twice."""
    first = parse_id(ids[0])
    run = range(first.slot, first.slot + len(ids))
    prefix = ids[0][:_BLOCK_WIDTH]
    if ids == [prefix + text for text in _FIRST_HAND_OUTS[run.start : run.stop]]:
        return {first.block_id: run}
    named: dict[int, NamedSlots] = {}
    slots: dict[int, int] = {}
    prefix = ""
    for item_id in ids:
        if not prefix or not item_id.startswith(prefix):
            slots = named.setdefault(parse_id(item_id).block_id, {})  # type: ignore[assignment]
            prefix = item_id[:_BLOCK_WIDTH]
        slot = _SLOT_OF_FIRST.get(item_id[_BLOCK_WIDTH:])
        attempt = 1
        if slot is None:
            _, slot, attempt = parse_id(item_id)
        if slot in slots:
            raise InvalidRequest("ids is invalid", f"'{item_id}' is named twice")
        slots[slot] = attempt
    return named


def same_attempt(named: int, attempt: int) -> bool:
    """Whether an id that names one attempt means the hand-out with this number."""
    return named == min(attempt, _MAX_ATTEMPT)
