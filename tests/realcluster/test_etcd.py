"""etcd goes away under load and comes back: who owns something goes on with it.

`QUERATOR_ETCD_AWAY_S` says for how long.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.etcd_server import Etcd
from tests.history.events import Event, Invoked, Returned
from tests.realcluster.cluster import LEASE_S, SPREAD, Cluster, crew_on
from tests.realcluster.verdict import SEED, Tell, report_of

AWAY_S = float(os.environ.get("QUERATOR_ETCD_AWAY_S", str(LEASE_S + 2)))

# What a client may be told while all goes well. It hangs up by itself now and then, and completes late.
_EXPECTED = ("454 request timed out; no items were ready", "400 item is not leased", "hung up")


@asynccontextmanager
async def stopped(etcd: Etcd) -> AsyncIterator[None]:
    await asyncio.to_thread(etcd.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(etcd.start)


def answers(events: list[Event], since_ms: int, until_ms: int) -> Counter[str]:
    """How often each call that began then was answered how."""
    asked = {(event.client, event.number): event for event in events if isinstance(event, Invoked)}
    found: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Returned):
            begin = asked[event.client, event.number]
            if since_ms <= begin.at_ms < until_ms:
                is_expected = event.outcome == "ok" or event.reason.startswith(_EXPECTED)
                found["" if is_expected else f"{begin.call}: {event.reason}"] += 1
    return found


@pytest.mark.slow
async def test_calls_go_on_without_an_error_while_etcd_is_away(cluster: Cluster, tell: Tell) -> None:
    """For longer than the leases last, produce, reserve and complete work as before, and afterwards nothing is lost."""
    async with crew_on(cluster, SEED, [SPREAD]) as crew:
        async with crew.at_work(producers=3, consumers=4):
            await crew.rounds(50)
            since_ms = crew.clock.now_ms()
            async with stopped(cluster.etcd):
                await asyncio.sleep(AWAY_S)  # so long it is away
                await crew.rounds(50)
                until_ms = crew.clock.now_ms()
            await cluster.until_members(3)
            await cluster.until_spread()
            await crew.rounds(50)
        report = await report_of(crew)
    told = answers(crew.events, since_ms, until_ms)
    tell(f"etcd away for {(until_ms - since_ms) / 1000:.1f} s: {told['']} calls went well; {report}")
    assert set(told) == {""}, told
