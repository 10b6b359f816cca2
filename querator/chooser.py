"""Chooses the items that a reserve gets: oldest first, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from querator import bits
from querator.blocks import Block
from querator.requests import Run


class Chooser:
    """Goes once over the ready items of a turn; what it took, it does not offer again."""

    def __init__(self, blocks: Iterable[Block], ready: Callable[[Block], int]) -> None:
        self._blocks = iter(blocks)
        self._ready_of = ready  # the slots of a block that may be handed out in this turn
        self._block: Block | None = None
        self._ready = 0  # what is left of them

    def take(self, count: int) -> tuple[dict[int, int], list[Run]]:
        """Up to ``count`` items: their slots by block, and the items themselves."""
        taken: dict[int, int] = {}
        runs: list[Run] = []
        while count:
            block = self._next_block()
            if block is None:
                break
            assert block.body is not None, "ready blocks are read"
            for start, stop in bits.runs(self._ready, count):
                mask = bits.span(start, stop)
                taken[block.id] = taken.get(block.id, 0) | mask
                runs.append(Run(block.id, start, block.body.items[start:stop], block.tries == 0))
                self._ready ^= mask
                count -= stop - start
        return taken, runs

    def _next_block(self) -> Block | None:
        while not self._ready:
            self._block = next(self._blocks, None)
            if self._block is None:
                return None
            self._ready = self._ready_of(self._block)
        return self._block
