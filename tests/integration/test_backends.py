"""Queues over several backends and drivers at once, over HTTP, with a real PostgreSQL that stops and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.postgres_server import INSTALL, NOT_DURABLE, Postgres, installed, private_postgres
from querator.config_sources import VARIABLES
from tests.integration.running import Running, running, sqlite, until


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A PostgreSQL that the test may stop."""
    if installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {INSTALL}")
    with private_postgres(NOT_DURABLE) as server:
        yield server


def postgres(server: Postgres, affinity: float) -> dict[str, Any]:
    options = {"dsn": server.address, "connect_timeout": "2s", "command_timeout": "5s"}
    return {"name": "pg", "driver": "postgres", "affinity": affinity, "options": options}


def counts(places: dict[str, list[str]]) -> dict[str, int]:
    return {name: len(states) for name, states in places.items()}


async def produce(instance: Running, numbers: range) -> list[str]:
    """One item a request, so that they are spread over the partitions."""
    texts = [str(number) for number in numbers]
    for text in texts:
        await instance.ok("queue.produce", queue_name="mail", items=[{"utf8": text}], request_timeout="20s")
    return texts


async def take(instance: Running, count: int) -> Counter[str]:
    """Reserve and complete until so many items were there."""
    taken: Counter[str] = Counter()
    while taken.total() < count:
        reserved = await instance.ok(
            "queue.reserve", queue_name="mail", batch_size=100, client_id="c", request_timeout="50s"
        )
        ids = [item["id"] for item in reserved["items"]]
        await instance.ok("queue.complete", queue_name="mail", partition=reserved.get("partition", 0), ids=ids)
        taken.update(item["bytes"] for item in reserved["items"])
    return taken


async def test_partitions_are_spread_over_files(tmp_path: Path) -> None:
    """8 partitions at 1.0, 0.5, 0.5 and 0.0 are 4, 2, 2 and none, and stay so after a restart."""
    storage = [sqlite("a"), sqlite("b", 0.5), sqlite("c", 0.5), sqlite("d", 0.0)]
    async with running(tmp_path / "querator.yaml", storage=storage) as instance:
        await instance.ok("queues.create", queue_name="mail", requested_partitions=8)
        assert counts(await instance.places("mail")) == {"a": 4, "b": 2, "c": 2}
        assert await instance.backends() == {"a": (1.0, 4), "b": (0.5, 2), "c": (0.5, 2), "d": (0.0, 0)}
    async with running(tmp_path / "querator.yaml", storage=storage[::-1]) as instance:
        assert counts(await instance.places("mail")) == {"a": 4, "b": 2, "c": 2}


async def test_partitions_are_spread_over_two_drivers(tmp_path: Path, database: Postgres) -> None:
    """Two files and a PostgreSQL at 1.0, 0.5 and 0.5: 4, 2 and 2 of 8 partitions, and items go through all of them."""
    storage = [sqlite("a"), sqlite("b", 0.5), postgres(database, 0.5)]
    async with running(tmp_path / "querator.yaml", storage=storage) as instance:
        await instance.ok("queues.create", queue_name="mail", requested_partitions=8)
        assert await instance.places("mail") == {
            "a": ["available"] * 4,
            "b": ["available"] * 2,
            "pg": ["available"] * 2,
        }
        produced = await produce(instance, range(32))
        info = await instance.ok("queues.info", queue_name="mail")
        assert [partition["ready"] for partition in info["partitions"]] == [4] * 8
        assert (await take(instance, 32)).total() == len(produced)


async def test_a_database_that_stops_is_missed_and_comes_back(tmp_path: Path, database: Postgres) -> None:
    """Meanwhile produces go to the other backends, sight says so; afterwards every item of it is delivered."""
    storage = [sqlite("a"), postgres(database, 1.0)]
    async with running(tmp_path / "querator.yaml", storage=storage) as instance:
        await instance.ok("queues.create", queue_name="mail", requested_partitions=4)
        before = await produce(instance, range(20))
        database.crash()

        async def is_missed() -> bool:
            return await instance.health() == {"a": "pass", "pg": "fail"}

        await until(is_missed)
        during = await produce(instance, range(20, 60))
        assert await is_missed()

        async def all_there_fail() -> bool:
            return set((await instance.places("mail"))["pg"]) == {"failing"}

        await until(all_there_fail)
        assert (await instance.places("mail"))["a"] == ["available"] * 2
        assert await instance.backends() == {"a": (1.0, 2), "pg": (1.0, 2)}
        database.start()
        assert len(await take(instance, len(before) + len(during))) == len(before) + len(during)

        async def all_is_well() -> bool:
            return await instance.health() == {"a": "pass", "pg": "pass"}

        await until(all_is_well)


async def test_a_start_does_not_wait_for_a_database_that_is_down(tmp_path: Path, database: Postgres) -> None:
    """Queues that are there are served as far as they can be, declared ones are made when the database is back."""
    path = tmp_path / "querator.yaml"
    storage = [sqlite("a"), postgres(database, 1.0)]
    async with running(path, storage=storage) as instance:
        await instance.ok("queues.create", queue_name="mail", requested_partitions=2)
        await produce(instance, range(10))
    database.crash()
    queues = [{"queue_name": "declared", "requested_partitions": 2, "dead_queue": "mail"}]
    async with running(path, storage=storage, queues=queues) as instance:
        await produce(instance, range(10, 20))
        status, refused = await instance.call("queues.create", queue_name="other", requested_partitions=2)
        assert (status, refused["message"].partition(";")[0]) == (454, "backend is failing")
        assert "'pg'" in refused["message"]
        assert (await instance.call("queues.info", queue_name="declared"))[0] != 200
        database.start()
        assert len(await take(instance, 20)) == 20

        async def is_there() -> bool:
            return (await instance.call("queues.info", queue_name="declared"))[0] == 200

        await until(is_there)
        await instance.ok("queues.create", queue_name="other", requested_partitions=2)
