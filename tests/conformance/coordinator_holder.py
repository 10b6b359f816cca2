"""A process that holds something until it is killed: ``KIND PLACE key|election``."""

from __future__ import annotations

import asyncio
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
    else:
        lease = await coordinator.grant(LEASE_MS)
        await coordinator.transact(expected={}, puts={what: b"held"}, lease=lease)
    sys.stdout.write("held\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
