"""Sets of slots as integers: bit n stands for slot n. Python's integers make them cheap up to thousands of slots."""

from __future__ import annotations

from collections.abc import Collection, Iterator


def span(start: int, stop: int) -> int:
    """The slots from start up to but without stop."""
    return ((1 << (stop - start)) - 1) << start


def union(slots: Collection[int]) -> int:
    """The set of these slots."""
    if isinstance(slots, range):
        return span(slots.start, slots.stop)
    first, last = min(slots), max(slots)
    if last - first + 1 == len(slots):
        return span(first, last + 1)
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


def runs(mask: int, limit: int) -> list[tuple[int, int]]:
    """The lowest ``limit`` slots as (start, stop) of neighbours, in order."""
    if not mask & (mask - 1) and mask:  # one slot, the most common of all
        stop = mask.bit_length()
        return [(stop - 1, stop)] if limit > 0 else []
    found = []
    while mask and limit > 0:
        start = (mask & -mask).bit_length() - 1
        shifted = mask >> start
        length = min(limit, (~shifted & (shifted + 1)).bit_length() - 1)
        found.append((start, start + length))
        limit -= length
        mask = (shifted >> length) << (start + length)
    return found


def slots(mask: int) -> Iterator[int]:
    """Every slot of the set, in order."""
    for start, stop in runs(mask, mask.bit_length()):
        yield from range(start, stop)


def to_bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "little")
