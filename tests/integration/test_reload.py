"""`config.reload` and SIGHUP on a whole instance: what changes without a restart, and what is refused."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from querator.config_sources import VARIABLES
from tests.integration.running import PATIENCE_S, Running, memory, running, sqlite, until, write_config


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "querator.yaml", storage=[sqlite("one")]) as instance:
        yield instance


async def test_a_backend_that_is_added_takes_partitions_at_once(instance: Running) -> None:
    """Without a restart, in proportion to its affinity, and it is usable: items come back from there."""
    instance.write(storage=[sqlite("one"), sqlite("two", 0.5)])
    changes = (await instance.ok("config.reload"))["changes"]
    assert changes == ["backend 'two' was added"]
    await instance.ok("queues.create", queue_name="mail", requested_partitions=3)
    assert await instance.places("mail") == {"one": ["available"] * 2, "two": ["available"]}
    for number in range(12):
        await instance.ok("queue.produce", queue_name="mail", items=[{"utf8": str(number)}])
    taken: list[str] = []
    while len(taken) < 12:
        reserved = await instance.ok(
            "queue.reserve", queue_name="mail", batch_size=100, client_id="c", request_timeout="10s"
        )
        taken.extend(item["bytes"] for item in reserved["items"])
    assert len(set(taken)) == 12
    assert await instance.backends() == {"one": (1.0, 2), "two": (0.5, 1)}
    instance.write(listen=["127.0.0.1:0"], storage=[sqlite("one"), sqlite("two", 0.5)])
    assert await instance.ok("config.reload") == {}


async def test_affinity_holds_for_the_next_queues(instance: Running) -> None:
    """Partitions stay where they are; a backend at 0.0 takes no more."""
    instance.write(storage=[sqlite("one"), sqlite("two")])
    await instance.ok("config.reload")
    await instance.ok("queues.create", queue_name="first", requested_partitions=4)
    instance.write(storage=[sqlite("one", 0.0), sqlite("two", 0.25)])
    changes = (await instance.ok("config.reload"))["changes"]
    assert changes == ["the affinity of backend 'one' is 0.0", "the affinity of backend 'two' is 0.25"]
    await instance.ok("queues.create", queue_name="second", requested_partitions=4)
    assert {name: len(states) for name, states in (await instance.places("first")).items()} == {"one": 2, "two": 2}
    assert {name: len(states) for name, states in (await instance.places("second")).items()} == {"two": 4}


async def test_limits_hold_at_once(instance: Running) -> None:
    """For requests on connections that are open, for queues that are open, and for queues that are made."""
    for queue_name in ("mail", "empty"):
        await instance.ok("queues.create", queue_name=queue_name)
    items = [{"utf8": "x"}] * 3
    await instance.ok("queue.produce", queue_name="mail", items=items)
    limits = {"items_per_request": 2, "partitions_per_queue": 2, "waiting_reserves": 1, "produce_body_bytes": 500}
    instance.write(storage=[sqlite("one")], limits=limits)
    changes = (await instance.ok("config.reload"))["changes"]
    assert changes == [
        "limits.produce_body_bytes is 500",
        "limits.items_per_request is 2",
        "limits.partitions_per_queue is 2",
        "limits.waiting_reserves is 1",
    ]
    assert "it must hold 1 to 2" in await instance.refused("queue.produce", queue_name="mail", items=items)
    large = [{"utf8": "x" * 1000}]
    assert "at most 500 bytes" in await instance.refused("queue.produce", queue_name="mail", items=large)
    wide = {"queue_name": "wide", "requested_partitions": 3}
    assert "requested_partitions is invalid" in await instance.refused("queues.create", **wide)
    waiting = asyncio.ensure_future(
        instance.call("queue.reserve", queue_name="empty", batch_size=1, client_id="a", request_timeout="30s")
    )

    async def one_waits() -> bool:
        stats = await instance.ok("queue.stats", queue_name="empty")
        return bool(stats["logicalQueues"][0].get("lease_waiting"))

    await until(one_waits)
    refused = await instance.refused("queue.reserve", queue_name="empty", batch_size=1, client_id="b")
    assert refused.startswith("overloaded")
    await instance.ok("queue.produce", queue_name="empty", items=[{"utf8": "x"}])
    assert (await waiting)[0] == 200
    instance.write(storage=[sqlite("one")])
    await instance.ok("config.reload")
    await instance.ok("queue.produce", queue_name="mail", items=[{"utf8": "x" * 1000}] * 3)


async def test_queues_are_made_and_none_is_changed(instance: Running) -> None:
    """What is declared and not there is made, dead queues first; the second reload finds nothing to do."""
    await instance.ok("queues.create", queue_name="there", max_attempts=3)
    queues = [
        {"queue_name": "mail", "dead_queue": "dead", "max_attempts": 2},
        {"queue_name": "dead"},
        {"queue_name": "there", "max_attempts": 9},
    ]
    instance.write(storage=[sqlite("one")], queues=queues)
    changes = (await instance.ok("config.reload"))["changes"]
    assert changes == ["queue 'dead' was created", "queue 'mail' was created"]
    assert (await instance.ok("queues.info", queue_name="there"))["max_attempts"] == 3
    assert await instance.ok("config.reload") == {}


async def test_a_backend_without_partitions_can_be_removed(instance: Running, tmp_path: Path) -> None:
    """And added again; one that has partitions stays, and the queues that it has are named."""
    both = [sqlite("one"), sqlite("two")]
    instance.write(storage=both)
    await instance.ok("config.reload")
    await instance.ok("queues.create", queue_name="mail", requested_partitions=2)
    instance.write(storage=[sqlite("one")])
    refused = await instance.refused("config.reload")
    assert refused.endswith("storage is invalid; backend 'two' cannot be removed: it has partitions of 'mail'")
    assert "querator.yaml line 3: " in refused
    assert set(await instance.backends()) == {"one", "two"}
    await instance.ok("queues.delete", queue_name="mail")
    assert (await instance.ok("config.reload"))["changes"] == ["backend 'two' was removed"]
    assert set(await instance.backends()) == set(await instance.health()) == {"one"}
    assert not (tmp_path / "data/two.db-wal").exists()  # it was closed in order
    instance.write(storage=both)
    await instance.ok("config.reload")
    await instance.ok("queues.create", queue_name="mail", requested_partitions=2)
    assert set(await instance.places("mail")) == {"one", "two"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("an option of a backend", {"storage": [memory("one", 2.0)]}, "line 6: storage[0].affinity is invalid"),
    ("driver", {"storage": [memory("one")]}, "line 5: storage[0].driver cannot be changed while running"),
    (
        "options of a driver",
        {"storage": [{**sqlite("one"), "options": {"path": "other.db"}}]},
        "line 7: storage[0].options cannot be changed while running",
    ),
    ("listen", {"listen": "127.0.0.1:1"}, "line 1: listen cannot be changed while running; restart to change it"),
    ("telemetry", {"telemetry": {"service_name": "x"}}, "telemetry.service_name cannot be changed while running"),
    ("an unknown option", {"colour": "red"}, "line 9: colour is unknown"),
    ("a dead queue", {"queues": [{"queue_name": "a", "dead_queue": "no"}]}, "line 11: queues[0].dead_queue is invalid"),
    (
        "a backend",
        {"storage": [sqlite("one"), {**sqlite("two"), "options": {"path": "."}}]},
        "line 9: backend 'two' cannot be opened",
    ),
]


@pytest.mark.parametrize(("options", "expected"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_refused_file_changes_nothing(
    instance: Running, tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    """The answer names line and option, and nothing else of the same file comes into force either."""
    base = {"listen": "127.0.0.1:0", "data_dir": str(tmp_path / "data"), "storage": [sqlite("one")]}
    changes = {"limits": {"items_per_request": 1}, "queues": [{"queue_name": "new"}]}
    storage = [*options.get("storage", [sqlite("one")]), sqlite("added", 0.5)]
    instance.write(**{**base, **options})
    assert expected in await instance.refused("config.reload")
    more = {**base, **changes, **options, "storage": storage}
    instance.write(**more)
    await instance.refused("config.reload")
    await instance.ok("queues.create", queue_name="mail")
    await instance.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}, {"utf8": "b"}])
    assert await instance.backends() == {"one": (1.0, 1)}
    assert [queue["queue_name"] for queue in (await instance.ok("queues.list"))["items"]] == ["mail"]


async def test_broken_yaml_is_refused_with_its_line(instance: Running) -> None:
    """And the instance goes on as it was."""
    instance.path.write_text("listen: 127.0.0.1:0\nstorage: [\n")
    assert "querator.yaml line 3: configuration is not YAML; " in await instance.refused("config.reload")
    assert await instance.backends() == {"one": (1.0, 0)}


async def test_a_queue_that_cannot_be_made_takes_everything_back(instance: Running, tmp_path: Path) -> None:
    """A reload that fails half way leaves no queue, no backend, no limit and no partition behind."""
    queues = [{"queue_name": "mail"}, {"queue_name": "late", "dead_queue": "mail"}, {"queue_name": "wide"}]
    down = {"name": "down", "driver": "postgres", "options": {"dsn": "postgresql://u:secret@127.0.0.1:1/x"}}
    # `mail` has its one partition on the first backend; the two of `wide` need the second, which is down.
    queues[2]["requested_partitions"] = 2  # type: ignore[assignment]
    limits = {"items_per_request": 1}
    instance.write(storage=[sqlite("one"), down], queues=queues, limits=limits)
    refused = await instance.refused("config.reload")
    assert refused.startswith("backend is failing; 'down' takes no partitions now")
    assert "secret" not in refused
    assert await instance.ok("queues.list") == {}
    assert await instance.backends() == {"one": (1.0, 0)}
    await instance.ok("queues.create", queue_name="mail")
    await instance.ok("queue.produce", queue_name="mail", items=[{"utf8": "a"}, {"utf8": "b"}])


async def test_reloads_at_once_go_one_after_the_other(instance: Running) -> None:
    """Only the first finds something to do."""
    instance.write(storage=[sqlite("one"), sqlite("two")], queues=[{"queue_name": "mail"}])
    answers = await asyncio.gather(*(instance.ok("config.reload") for _ in range(5)))
    assert sorted(len(answer.get("changes", [])) for answer in answers) == [0, 0, 0, 0, 2]


async def test_sighup_reloads_a_process(tmp_path: Path) -> None:
    """A good file holds without a restart; a bad one is told in the log with line and option, and changes nothing."""
    path, log = tmp_path / "querator.yaml", tmp_path / "server.log"
    write_config(path, storage=[sqlite("one")], log={"format": "json"})
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "querator.cli", "serve", "--config", str(path)), stderr=file
        )
    try:
        await until_logged(log, "listening")
        write_config(path, storage=[sqlite("one", 7.0)], log={"format": "json"})
        process.send_signal(signal.SIGHUP)
        (refused,) = await until_logged(log, "configuration was not reloaded")
        assert "querator.yaml line 6: storage[0].affinity is invalid; " in refused["reason"]
        queues = [{"queue_name": "mail"}]
        write_config(path, storage=[sqlite("one")], log={"format": "json", "level": "debug"}, queues=queues)
        process.send_signal(signal.SIGHUP)
        (reloaded,) = await until_logged(log, "configuration reloaded")
        assert reloaded["changes"] == ["log.level is debug", "queue 'mail' was created"]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_logged(log: Path, event: str) -> list[dict[str, Any]]:
    """Wait for an event; gives all of its kind."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        lines = log.read_text().split("\n")[:-1]
        found[:] = [each for each in map(json.loads, lines) if each["event"] == event]
        return bool(found)

    await until(is_there)
    return found
