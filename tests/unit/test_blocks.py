"""Block ids, item ids, and the cutting of a turn's items into blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querator.block_writer import BlockWriter
from querator.blocks import Block, next_block_id, read_block, ready_at_ms
from querator.errors import InvalidRequest
from querator.items import MAX_SLOTS, NEVER_MS, BlockBody, Item, format_id, parse_id, same_attempt
from querator.leases import Lease
from querator.limits import Limits
from querator.waist import MAX_BLOCK_ID

NOW_MS = 1_800_000_000_000
INSTANTS = st.integers(1_700_000_000_000, 3_800_000_000_000)


@settings(deadline=None)
@given(st.lists(INSTANTS, min_size=1))
def test_block_ids_grow_whatever_the_clock_does(instants: list[int]) -> None:
    """Also with a clock that steps back, every id is higher than the one before, positive, and fits in 63 bits."""
    last = 0
    for now_ms in instants:
        block_id = next_block_id(now_ms, last)
        assert last < block_id <= MAX_BLOCK_ID
        last = block_id


@settings(deadline=None)
@given(INSTANTS)
def test_a_block_id_tells_when_its_items_became_ready(now_ms: int) -> None:
    """With a clock that goes forward, the instant can be read from the id."""
    assert ready_at_ms(next_block_id(now_ms, 0)) == now_ms


def test_ids_of_one_millisecond_are_not_exhausted() -> None:
    """More blocks in one ms than the sequence has room for still get growing ids."""
    block_id = 0
    for _ in range(70_000):
        following = next_block_id(NOW_MS, block_id)
        assert following > block_id
        block_id = following
    assert next_block_id(NOW_MS + 1, block_id) > block_id


def test_a_clock_before_the_first_instant_still_gives_ids() -> None:
    """A machine that starts in 1970 gives positive ids that grow."""
    first = next_block_id(0, 0)
    assert 0 < first < next_block_id(0, first) < next_block_id(NOW_MS, first + 1)


PLACES = st.tuples(st.integers(1, MAX_BLOCK_ID), st.integers(0, MAX_SLOTS - 1), st.integers(1, 0xFFFF))


@settings(deadline=None)
@given(PLACES, PLACES)
def test_the_order_of_item_ids_is_the_order_of_places(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    """An id has a fixed width, gives its place back, and compares as the place does."""
    assert tuple(parse_id(format_id(*one))) == one
    assert len(format_id(*one)) == len(format_id(*other))
    assert (format_id(*one) < format_id(*other)) == (one < other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0" * 22,
        "0" * 24,
        "g" * 23,
        "0" * 16 + "-01" + "0001",
        "0" * 16 + "0_1" + "0001",
        " " * 22 + "1",
        "+" + "0" * 22,
        "٣" * 23,
        "0" * 16 + "00A" + "0001",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    """Only the exact form is an id: no signs, underscores, spaces, capitals or digits of other scripts."""
    with pytest.raises(InvalidRequest):
        parse_id(text)


def test_attempts_beyond_what_an_id_tells_look_alike() -> None:
    """An item with very many hand-outs can still be completed."""
    place = parse_id(format_id(1, 2, 1_000_000))
    assert same_attempt(place.attempt, 1_000_000)
    assert not same_attempt(3, 4)


def block_of(*items: Item, expire_at: int = NEVER_MS) -> Block:
    block = Block(next_block_id(NOW_MS, 0), len(items))
    block.fill(BlockBody(expire_at, list(items)), 100)
    return block


def test_a_slot_is_ready_unless_it_is_done_or_leased() -> None:
    """Leasing and unleasing move slots between ready and leased, and done ones are neither."""
    block = block_of(*(Item(payload=b"x") for _ in range(4)))
    lease = Lease(1, "c", 0, {})
    block.lease(0b0110, lease)
    assert (block.ready, block.leased, block.owner(1), block.owner(0)) == (0b1001, 0b0110, lease, None)
    block.unlease(0b0010)
    block.done = 0b0001
    assert (block.ready, block.leased, block.owner(1)) == (0b1010, 0b0100, None)
    with pytest.raises(AssertionError):
        block.lease(0b0100, lease)


def test_unfit_slots_are_those_that_expired_or_are_out_of_attempts() -> None:
    """Items without an own deadline expire with their block; leased ones are never unfit."""
    block = block_of(
        Item(payload=b"a"),
        Item(payload=b"b", expire_at=NOW_MS + 9),
        Item(payload=b"c", attempts=3),
        expire_at=NOW_MS + 5,
    )
    assert block.unfit(NOW_MS, 0) == 0
    assert block.unfit(NOW_MS, 3) == 0b100
    assert block.unfit(NOW_MS + 5, 0) == 0b101
    assert block.unfit(NOW_MS + 9, 0) == 0b111
    block.lease(0b010, Lease(1, "c", 0, {}))
    assert block.unfit(NOW_MS + 9, 3) == 0b101


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=12), max_size=12),
    st.integers(1, 8),
    st.integers(1, 120),
)
def test_written_blocks_hold_all_items_in_order_within_their_bounds(
    requests: list[list[int]], block_items: int, block_bytes: int
) -> None:
    """Whatever the requests, every item has the place it was told, and a block keeps its bounds unless one item alone is larger."""
    writer = BlockWriter(
        now_ms=NOW_MS,
        last_block_id=0,
        expire_at_ms=NEVER_MS,
        limits=Limits(block_items=block_items, block_bytes=block_bytes),
    )
    told: dict[tuple[int, int], Item] = {}
    for sizes in requests:
        items = [Item(payload=b"x" * size) for size in sizes]
        runs = writer.add(items, sum(sizes))
        assert [item for run in runs for item in run.items] == items
        told |= {(run.block_id, slot): item for run in runs for slot, item in enumerate(run.items, run.start)}
    writer.finish()
    stored: dict[tuple[int, int], Item] = {}
    for block, data in writer.blocks:
        read = read_block(block.id, data)
        assert read.count == block.count <= block_items
        assert read.body is not None
        sizes = [len(item.payload) for item in read.body.items]
        assert sum(sizes) <= block_bytes or len(sizes) == 1
        stored |= {(block.id, slot): item for slot, item in enumerate(read.body.items)}
    assert stored == told
    ids = [block.id for block, _ in writer.blocks]
    assert ids == sorted(set(ids))
    assert writer.last_block_id == max(ids, default=0)
