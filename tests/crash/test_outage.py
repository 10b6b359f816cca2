"""One of three backends goes away under load and comes back: the others go on, and nothing of it is lost.

`QUERATOR_SEED` names another course of events.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bench.postgres_server import Postgres
from querator.items import NEVER_MS
from tests.crash.client import Client, Held
from tests.crash.database import Outage, crashed, hanging, postgres, stopped
from tests.crash.load import LEASE_MS, Crew, crew_of
from tests.crash.server import PATIENCE_S, server_in, sqlite
from tests.history.checker import CLOCK_TOLERANCE_MS
from tests.history.events import Event, Invoked, QueueFacts, Returned
from tests.schemas import new_schema

SEED = int(os.environ.get("QUERATOR_SEED", "2319"))
SPREAD = QueueFacts(queue="spread", partitions=6, lease_timeout_ms=LEASE_MS)
PRODUCE_TIMEOUT_MS = 2000
FLOW = 300  # items that the other backends must let through meanwhile


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.01)


async def states(crew: Crew) -> dict[str, Counter[str]]:
    """How many partitions are in which state, by backend."""
    found: dict[str, Counter[str]] = {}
    for partition in await partitions(crew):
        found.setdefault(partition["backend"], Counter())[partition["state"]] += 1
    return found


async def partitions(crew: Crew) -> list[dict[str, str]]:
    answer = await crew.client("control").post("queues.info", {"queue_name": SPREAD.queue})
    assert answer.status == 200, answer.text
    found: list[dict[str, str]] = answer.body["partitions"]
    return found


async def hold_some(client: Client) -> list[list[Held]]:
    """Leases on items of every partition, which last longer than any outage here."""
    for _ in range(2 * SPREAD.partitions):
        assert await client.produce(SPREAD.queue, 5) == "ok"
    held = [
        await client.reserve(SPREAD.queue, 100, timeout_ms=10_000, lease_timeout_ms=600_000)
        for _ in range(SPREAD.partitions)
    ]
    assert {each.partition for some in held for each in some} == set(range(SPREAD.partitions))
    return held


def calls(events: list[Event], call: str) -> Iterator[tuple[Invoked, Returned]]:
    """The ended ones, in the order of their ends."""
    asked = {(event.client, event.number): event for event in events if isinstance(event, Invoked)}
    for event in events:
        if isinstance(event, Returned) and (begin := asked[event.client, event.number]).call == call:
            yield begin, event


def completed(events: list[Event], since_ms: int = 0, until_ms: int = NEVER_MS) -> int:
    """How many items."""
    ends = ((asked, end) for asked, end in calls(events, "complete") if since_ms <= end.at_ms < until_ms)
    return sum(len(asked.claims) for asked, end in ends if end.outcome == "ok")


def summary(events: list[Event], *marks_ms: int) -> str:
    """How produces were answered, and how many items were completed in a second between each two instants."""
    answers = Counter(end.reason.partition(";")[0] or "200" for _, end in calls(events, "produce"))
    flows = [1000 * completed(events, *span) // max(1, span[1] - span[0]) for span in pairwise(marks_ms)]
    return f"produces {dict(answers)}, completed/s before, during, after {flows}"


def given_up_early(events: list[Event]) -> list[tuple[Invoked, Returned]]:
    """Produces that the server refused, or had doubts about, before their own time was over."""
    return [
        (asked, end)
        for asked, end in calls(events, "produce")
        if end.reason.startswith("45") and end.at_ms - asked.at_ms < PRODUCE_TIMEOUT_MS - CLOCK_TOLERANCE_MS
    ]


async def see_the_outage(crew: Crew) -> None:
    """Until everybody can see it, and items flow all the same."""
    report = await crew.server.until_health("warn", a="pass", b="pass", pg="fail")
    assert report["checks"]["backend:pg"][0]["output"]

    async def all_of_it_fail() -> bool:
        return (await states(crew))["pg"] == {"failing": 2}

    await until(all_of_it_fail)
    completed_before = completed(crew.events)

    async def items_flow() -> bool:
        return completed(crew.events) >= completed_before + FLOW

    await until(items_flow)
    assert await states(crew) == {"a": {"available": 2}, "b": {"available": 2}, "pg": {"failing": 2}}


@pytest.mark.slow
@pytest.mark.parametrize("outage", [stopped, crashed, hanging])
async def test_the_other_backends_go_on_and_nothing_is_lost(
    outage: Outage,
    tmp_path: Path,
    database: Postgres,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No produce fails before its own time is over, sight says what fails, and what the backend held is delivered later."""
    storage = [sqlite("a"), sqlite("b"), postgres(database, new_schema())]
    async with (
        server_in(tmp_path, storage) as server,
        crew_of(server, SEED, [SPREAD], produce_timeouts_ms=[PRODUCE_TIMEOUT_MS]) as crew,
    ):
        await server.start()
        await crew.create_queues()
        holder = crew.client("holder")
        held = await hold_some(holder)
        marks_ms = [crew.clock.now_ms()]
        async with crew.at_work(producers=4, consumers=6):
            await crew.rounds(200)
            async with outage(database):
                marks_ms.append(crew.clock.now_ms())
                await see_the_outage(crew)
                marks_ms.append(crew.clock.now_ms())
            await server.until_health("pass")
            await crew.rounds(100)
            marks_ms.append(crew.clock.now_ms())
        assert [await holder.complete(some) for some in held] == ["ok"] * len(held)
        await crew.count()
        await crew.drain()
        assert await server.stop() == 0
        report = crew.check()
    with capsys.disabled():
        text = f"\n{outage.__name__}: {report}, {summary(crew.events, *marks_ms)} (seed {SEED})"
        pytestconfig.get_terminal_writer().line(text)
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert given_up_early(crew.events) == []
