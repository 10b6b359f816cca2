"""The logical queue behaves as the model does, whatever is asked of it, on every backend, through crashes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bench.postgres_server import Postgres
from querator import cold_path
from querator.clock import ManualClock
from querator.errors import NotLeased
from querator.items import Item
from querator.queues import QueueSettings, RetryPolicy
from querator.requests import Produced, RetryItem, Scheduled
from storage.drivers import open_backend
from tests.model.model import ModelItem, ModelQueue, State
from tests.model.rig import Rig, outcome
from tests.schemas import new_schema

TIMEOUT_MS = 10**9


class LogicalQueueMachine(RuleBasedStateMachine):
    driver: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.made = 0

    @initialize(
        partitions=st.integers(1, 3),
        max_attempts=st.sampled_from([0, 1, 3]),
        expire_timeout_ms=st.sampled_from([0, 9_000]),
        base_ms=st.sampled_from([0, 500]),
    )
    def begin(self, partitions: int, max_attempts: int, expire_timeout_ms: int, base_ms: int) -> None:
        self.model = ModelQueue(max_attempts=max_attempts)
        self.settings = QueueSettings(
            queue_name="main",
            dead_queue="dead",
            requested_partitions=partitions,
            max_attempts=max_attempts,
            expire_timeout_ms=expire_timeout_ms,
            lease_timeout_ms=2_000,
            retry_policy=RetryPolicy(base_ms=base_ms, factor=1.0, jitter=0.0),
        )
        self.runner.run(self._begin())

    def options(self) -> Mapping[str, object]:
        return {}

    async def _begin(self) -> None:
        backend = await open_backend(
            name="b", driver=self.driver, affinity=1.0, options=self.options(), data_dir=Path(self.folder.name)
        )
        self.rig = Rig(backend, self.settings, self.clock)
        await self.rig.create()
        await self.rig.open()

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.runner.run(self._end())
        self.runner.close()
        self.folder.cleanup()

    async def _end(self) -> None:
        await self.rig.close()
        await self.rig.backend.close()

    # What may be asked.

    @rule(count=st.integers(1, 7), later=st.integers(0, 2), delay_ms=st.integers(1, 5_000), expires=st.booleans())
    def produce(self, count: int, later: int, delay_ms: int, expires: bool) -> None:
        now_ms = self.clock.now_ms()
        items = [self._item(now_ms, expires=expires and index == 0) for index in range(count)]
        scheduled = [
            Scheduled(now_ms + delay_ms, self._item(now_ms, due_at_ms=now_ms + delay_ms)) for _ in range(later)
        ]

        async def call() -> None:
            await self.rig.main.produce(items, scheduled, sum(len(item.payload) for item in items), TIMEOUT_MS)
            await self.rig.settle()

        self.runner.run(call())

    def _item(self, now_ms: int, *, expires: bool = False, due_at_ms: int = 0) -> Item:
        self.made += 1
        tag = f"item-{self.made}"
        timeout_ms = 3_000 if expires else self.settings.expire_timeout_ms
        expire_at_ms = max(now_ms, due_at_ms) + timeout_ms if timeout_ms else None
        state: State = "scheduled" if due_at_ms else "ready"
        self.model.items[tag] = ModelItem(tag=tag, state=state, expire_at_ms=expire_at_ms, due_at_ms=due_at_ms)
        return Item(tag.encode(), expire_at=now_ms + 3_000 if expires else 0)

    @rule(count=st.integers(1, 9), lease_timeout_ms=st.sampled_from([0, 500, 6_000]))
    def reserve(self, count: int, lease_timeout_ms: int) -> None:
        async def call() -> None:
            future = self.rig.main.reserve(count, "client", TIMEOUT_MS, lease_timeout_ms)
            await self.rig.settle()
            deliverable = self.model.deliverable(self.clock.now_ms())
            if not future.done():
                future.cancel()
                assert not deliverable, "a reserve waits while items are ready"
                await self.rig.settle()
                return
            reservation = future.result()
            assert reservation.lease_deadline_ms == self.clock.now_ms() + (lease_timeout_ms or 2_000)
            taken = 0
            for run in reservation.runs:
                for item_id, item in zip(run.ids(), run.items, strict=True):
                    tag = item.payload.decode()
                    assert tag in deliverable
                    self.model.hand_out(
                        tag,
                        item_id=item_id,
                        partition=reservation.partition,
                        deadline_ms=reservation.lease_deadline_ms,
                        attempts=item.attempts + 1,
                    )
                    taken += 1
            assert 1 <= taken <= count

        self.runner.run(call())

    def _some_leased(self, data: st.DataObject) -> list[ModelItem]:
        leased = self.model.in_state("leased")
        partition = data.draw(st.sampled_from(sorted({item.partition for item in leased})))
        here = [item for item in leased if item.partition == partition]
        chosen = data.draw(st.lists(st.sampled_from(range(len(here))), min_size=1, max_size=6, unique=True))
        return [here[index] for index in chosen]

    def _has_leased(self) -> bool:
        return bool(self.model.in_state("leased"))

    @precondition(_has_leased)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        items = self._some_leased(data)

        async def call() -> None:
            await self.rig.main.complete(items[0].partition, [item.id for item in items], TIMEOUT_MS)
            await self.rig.settle()

        self.runner.run(call())
        self.model.complete(items)

    @precondition(_has_leased)
    @rule(data=st.data(), way=st.sampled_from(["policy", "past", "future", "dead"]))
    def retry(self, data: st.DataObject, way: str) -> None:
        items = self._some_leased(data)
        now_ms = self.clock.now_ms()
        policy_ms = self.settings.retry_policy.base_ms
        retry_at_ms = {"policy": 0, "past": now_ms - 5, "future": now_ms + 1_500, "dead": 0}[way]
        request = [RetryItem(item.id, retry_at_ms, way == "dead") for item in items]

        async def call() -> None:
            await self.rig.main.retry(items[0].partition, request, TIMEOUT_MS)
            await self.rig.settle()

        for item in items:
            self.model.give_back(item, now_ms, retry_at_ms=retry_at_ms or now_ms + policy_ms, rejected=way == "dead")
        self.runner.run(call())

    @precondition(_has_leased)
    @rule(data=st.data(), lease_timeout_ms=st.sampled_from([1_000, 8_000]))
    def renew(self, data: st.DataObject, lease_timeout_ms: int) -> None:
        items = self._some_leased(data)

        async def call() -> int:
            ids = [item.id for item in items]
            deadline_ms = await self.rig.main.renew(items[0].partition, ids, TIMEOUT_MS, lease_timeout_ms)
            await self.rig.settle()
            return deadline_ms

        deadline_ms = self.runner.run(call())
        assert deadline_ms == self.clock.now_ms() + lease_timeout_ms
        for item in items:
            item.deadline_ms = deadline_ms

    @precondition(lambda self: self.model.stale_ids)
    @rule(data=st.data())
    def complete_what_is_not_leased(self, data: st.DataObject) -> None:
        """A complete that names one stale id beside good ones is refused whole."""
        partition, stale_id = data.draw(st.sampled_from(self.model.stale_ids))
        good = [item.id for item in self.model.in_state("leased") if item.partition == partition]

        async def call() -> None:
            error = await outcome(self.rig.main.complete(partition, [*good[:2], stale_id], TIMEOUT_MS))
            assert isinstance(error, NotLeased)

        self.runner.run(call())

    @rule(by_ms=st.sampled_from([1, 400, 1_000, 2_000, 5_000, 10_000]))
    def advance(self, by_ms: int) -> None:
        async def call() -> None:
            self.clock.advance(by_ms)
            await self.rig.settle()

        self.model.advance(self.clock.now_ms() + by_ms)
        self.runner.run(call())

    @rule(gracefully=st.booleans(), busy=st.booleans())
    def restart(self, gracefully: bool, busy: bool) -> None:
        """A new owner opens everything, also while the old one is at work: its produce then counts only if answered."""

        async def call() -> None:
            if busy:
                now_ms = self.clock.now_ms()
                item = self._item(now_ms)
                future = self.rig.main.produce([item], [], len(item.payload), TIMEOUT_MS)
                await asyncio.sleep(0)
            await (self.rig.close() if gracefully else self.rig.crash())
            await self.rig.open()
            await self.rig.settle()
            if busy and not (future.done() and outcome_of(future)):
                tag = item.payload.decode()
                if tag not in await self.rig.contents(self.rig.main):
                    del self.model.items[tag]

        self.runner.run(call())

    @rule()
    def reload(self) -> None:
        async def call() -> None:
            await cold_path.reload(self.rig.main)
            await self.rig.settle()

        self.runner.run(call())

    # What must hold.

    @invariant()
    def contents_are_what_the_model_says(self) -> None:
        if hasattr(self, "rig"):
            self.runner.run(self._check())

    async def _check(self) -> None:
        now_ms = self.clock.now_ms()
        stored = await self.rig.contents(self.rig.main)
        dead = await self.rig.contents(self.rig.dead)
        scheduled = await self.rig.scheduled()
        assert len(stored) + len(dead) + len(scheduled) == len(stored.keys() | dead.keys() | scheduled)
        for item in self.model.items.values():
            if item.state == "ready" and item.tag in dead:
                assert item.expire_at_ms is not None
                assert item.expire_at_ms <= now_ms, f"{item.tag} died early"
                item.state = "dead"
            where = {
                "ready": stored.get(item.tag) is False,
                "leased": stored.get(item.tag) is True,
                "scheduled": item.tag in scheduled,
                "completed": item.tag not in stored and item.tag not in scheduled and item.tag not in dead,
                "dead": item.tag in dead,
            }
            assert where[item.state], f"{item.tag} should be {item.state}"
        partitions = self.rig.main.stats().partitions
        assert sum(partition.leased for partition in partitions) == sum(stored.values())
        assert sum(partition.ready for partition in partitions) == len(stored) - sum(stored.values())
        assert sum(partition.scheduled for partition in partitions) == len(scheduled)


def outcome_of(future: asyncio.Future[Produced]) -> bool:
    return not future.cancelled() and future.exception() is None


class MemoryMachine(LogicalQueueMachine):
    driver = "memory"


class SqliteMachine(LogicalQueueMachine):
    driver = "sqlite"

    def options(self) -> Mapping[str, object]:
        return {"path": "model.db", "synchronous": "off"}


class PostgresMachine(LogicalQueueMachine):
    driver = "postgres"
    dsn: ClassVar[str]

    def options(self) -> Mapping[str, object]:
        return {"dsn": self.dsn, "schema": new_schema(), "connect_timeout": "2m", "command_timeout": "2m"}


@pytest.fixture
def postgres_dsn(postgres: Postgres) -> None:
    PostgresMachine.dsn = postgres.address


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

TestOnMemory = MemoryMachine.TestCase
TestOnMemory.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=_QUIET, derandomize=True
)
TestOnSqlite = SqliteMachine.TestCase
TestOnSqlite.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=_QUIET, derandomize=True
)
TestOnPostgres = pytest.mark.usefixtures("postgres_dsn")(PostgresMachine.TestCase)
TestOnPostgres.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=_QUIET, derandomize=True
)
