"""A copy in memory of everything that the coordination holds under one prefix, kept up by a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Generic, TypeVar

from cluster.coordinator import Change, Coordinator, Snapshot

T = TypeVar("T")


class Mirror(Generic[T]):
    """What is read from it costs nothing, and may be a little old. What this process writes is in it at once.

    ``changed`` is told the name (the key without its prefix) of everything that comes, changes or goes.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        prefix: str,
        decode: Callable[[bytes], T],
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._coordinator = coordinator
        self._prefix = prefix
        self._decode = decode
        self._changed = changed
        self._values: dict[str, T] = {}
        self._revisions: dict[str, int] = {}  # of what was last heard of a name, also if that was its end

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str) -> T | None:
        return self._values.get(name)

    def items(self) -> list[tuple[str, T]]:
        """In the order of names."""
        return sorted(self._values.items(), key=lambda item: item[0])

    def values(self) -> list[T]:
        """In the order of names."""
        return [value for _, value in self.items()]

    def revision(self, name: str) -> int:
        """To be expected by a transaction that replaces what is here; 0 if nothing is."""
        return self._revisions.get(name, 0) if name in self._values else 0

    def key(self, name: str) -> str:
        return self._prefix + name

    async def load(self) -> None:
        """Read everything, once, so that it is there before the watch begins."""
        for entry in await self._coordinator.list(self._prefix):
            self.put(entry.key.removeprefix(self._prefix), self._decode(entry.value), entry.revision)

    async def follow(self) -> None:
        """Keep up with the changes; ends when the coordinator is closed."""
        async with aclosing(self._coordinator.watch(self._prefix)) as news:
            async for each in news:
                if isinstance(each, Snapshot):
                    self._replace(each)
                else:
                    self._apply(each)

    def put(self, name: str, value: T, revision: int) -> None:
        """What was written; the watch will tell of it again, and is then not listened to."""
        if revision > self._revisions.get(name, 0):
            self._values[name] = value
            self._revisions[name] = revision
            self._changed(name)

    def remove(self, name: str, revision: int) -> None:
        if revision > self._revisions.get(name, 0):
            self._revisions[name] = revision
            if self._values.pop(name, None) is not None:
                self._changed(name)

    def _apply(self, change: Change) -> None:
        name = change.key.removeprefix(self._prefix)
        if change.value is None:
            self.remove(name, change.revision)
        else:
            self.put(name, self._decode(change.value), change.revision)

    def _replace(self, snapshot: Snapshot) -> None:
        there = {entry.key.removeprefix(self._prefix): entry for entry in snapshot.entries}
        for name in [name for name in self._values if name not in there]:
            self.remove(name, snapshot.revision)
        for name, entry in there.items():
            self.put(name, self._decode(entry.value), entry.revision)
        # Whatever the watch tells from here on is younger than the snapshot: older ends need not be remembered.
        self._revisions = {
            name: revision
            for name, revision in self._revisions.items()
            if name in self._values or revision > snapshot.revision
        }
