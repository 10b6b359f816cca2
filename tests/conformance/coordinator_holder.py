"""A process that does something until it is killed: ``KIND PLACE election|writer|KEY``.

It leads an election, writes again and again, or holds a key under a lease; and says when it has begun.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from cluster.coordinator import Coordinator
from cluster.election import Election
from cluster.lease import host_clock
from cluster.one_host import OneHostCoordinator
from tests.conformance.coordinators import SHORT_MS, open_etcd

LEASE_MS = 2 * SHORT_MS  # not so short that a busy machine loses it


async def hold(kind: str, place: str, what: str) -> None:
    coordinator: Coordinator
    coordinator = await (open_etcd(place) if kind == "etcd" else OneHostCoordinator.open(Path(place)))
    election = Election(coordinator, key=what, value=b"holder", ttl_ms=LEASE_MS, clock=host_clock())
    if what == "election":
        election.start()
        await election.elected.wait()
    elif what != "writer":
        lease = await coordinator.grant(LEASE_MS)
        await coordinator.transact(expected={}, puts={what: b"held"}, lease=lease)
    sys.stdout.write("held\n")
    sys.stdout.flush()
    if what == "writer":
        await write(coordinator)
    await asyncio.Event().wait()


async def write(coordinator: Coordinator) -> None:
    for number in itertools.count():
        await coordinator.transact(expected={}, puts={f"pair/{key}": str(number).encode() for key in range(20)})


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
