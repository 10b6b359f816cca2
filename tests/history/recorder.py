"""Writes a client's events down as they happen, to memory or to a file, and reads such files back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from querator.clock import Clock
from tests.history.events import Call, Claim, Event, HandOut, Invoked, Outcome, Returned, Sent

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode

Sink = Callable[[Event], None]


class Recorder:
    """Of one client. The asking is written before the call is sent, so that a killed client leaves it behind."""

    def __init__(self, client: str, clock: Clock, sink: Sink) -> None:
        self.client = client
        self._clock = clock
        self._sink = sink
        self._calls = 0

    def invoked(
        self,
        call: Call,
        queue: str,
        *,
        partition: int = 0,
        sent: Iterable[Sent] = (),
        claims: Iterable[Claim] = (),
        lease_timeout_ms: int = 0,
    ) -> int:
        """Returns the number of the call, by which its end is told."""
        self._calls += 1
        event = Invoked(
            client=self.client,
            number=self._calls,
            at_ms=self._clock.now_ms(),
            call=call,
            queue=queue,
            partition=partition,
            sent=tuple(sent),
            claims=tuple(claims),
            lease_timeout_ms=lease_timeout_ms,
        )
        self._sink(event)
        return self._calls

    def returned(
        self,
        number: int,
        outcome: Outcome,
        *,
        partition: int = 0,
        items: Iterable[HandOut] = (),
        lease_deadline_ms: int = 0,
        reason: str = "",
    ) -> None:
        event = Returned(
            client=self.client,
            number=number,
            at_ms=self._clock.now_ms(),
            outcome=outcome,
            partition=partition,
            items=tuple(items),
            lease_deadline_ms=lease_deadline_ms,
            reason=reason,
        )
        self._sink(event)


def to_file(file: IO[bytes]) -> Sink:
    """A line of JSON per event, out of the process before the client goes on."""

    def write(event: Event) -> None:
        file.write(_encode(event) + b"\n")
        file.flush()

    return write


def read_events(paths: Iterable[Path]) -> Iterator[Event]:
    """The events of several clients' files. A last line that was cut off by a kill tells nothing, and is left out."""
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield _decode(line)
