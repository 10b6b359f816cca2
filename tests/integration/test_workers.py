"""`querator serve --workers N`: several instances behind one address, watched over by one process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench import etcd_server
from bench.etcd_server import Etcd
from querator import Client
from querator.config import ClusterConfig
from querator.config_sources import VARIABLES
from querator.supervisor import peer_listen
from tests.integration.running import sqlite, write_config

PATIENCE_S = 60
_PAUSE_S = 0.01
PROGRAM = Path(sys.executable).with_name("querator")


class Workers:
    """A supervisor whose log is read as it is written."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.events.append(json.loads(line))

    async def until(self, holds: Callable[[], Any]) -> Any:
        """What holds then."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (found := holds()):
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise AssertionError("\n".join(map(str, self.events))) from None
        return found

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The lines of the log with this event and these fields."""
        return [each for each in self.events if {"event": event, **fields}.items() <= each.items()]

    def reloaded(self, change: str) -> set[int]:
        """The workers that have followed a change."""
        return {each["worker"] for each in self.said("configuration reloaded") if change in each["changes"]}

    @property
    def url(self) -> str:
        return str(self.said("listening")[0]["url"])

    def own_urls(self) -> dict[int, str]:
        """The address that each worker has for itself, by the last life of the worker."""
        return {each["worker"]: each["urls"][-1] for each in self.said("worker serves")}

    def pids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            await self._reading  # the log ends with the last process that writes to it
            return await self.process.wait()


def clean_environment() -> dict[str, str]:
    """Ours, without what would configure a server."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


@asynccontextmanager
async def workers(path: Path, *flags: str, count: int = 2) -> AsyncIterator[Workers]:
    """Started with the configuration file; whatever is left of it afterwards is killed."""
    options = ("--config", str(path), "--workers", str(count), "--log-format", "json", *flags)
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM),
        "serve",
        *options,
        cwd=path.parent,
        env=clean_environment(),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    running = Workers(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.ended()


@asynccontextmanager
async def serving(path: Path, *flags: str, count: int = 2) -> AsyncIterator[Workers]:
    async with workers(path, *flags, count=count) as running:
        await running.until(lambda: running.said("listening"))
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "querator.yaml"
    write_config(path)
    return path


async def test_all_workers_serve_all_queues(path: Path) -> None:
    """What is produced at one worker is reserved at another one and completed behind the common address."""
    async with serving(path, count=3) as running:
        urls = running.own_urls()
        assert sorted(urls) == [0, 1, 2]
        assert len({*urls.values(), running.url}) == 4
        async with Client(urls[0]) as first, Client(urls[1]) as second, Client(running.url) as common:
            await first.create_queue("mail", requested_partitions=3)
            info = await common.queue_info("mail")
            assert {each.backend for each in info.partitions} == {"local-0", "local-1", "local-2"}
            await first.produce("mail", [str(number) for number in range(30)])
            seen: list[str] = []
            while len(seen) < 30:
                items = await second.reserve("mail", 30)
                seen += [item.text for item in items]
                await common.complete(items)
            assert sorted(seen, key=int) == [str(number) for number in range(30)]
        assert await running.end(signal.SIGTERM) == 0
    assert sorted(each.name for each in (path.parent / "data").iterdir() if not each.name.endswith(".db")) == [
        "cluster.d",
        "lock",
    ]


async def test_a_worker_that_is_killed_is_started_again(path: Path) -> None:
    """The others have what it had, nothing is lost, and soon there are as many workers as before."""
    async with serving(path) as running:
        async with Client(running.url) as client:
            await client.create_queue("mail", requested_partitions=2)
            await client.produce("mail", "before")
        pids = running.pids()
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)
        await running.until(lambda: running.said("worker ended", code=-9))
        await running.until(lambda: len(running.said("worker serves")) == 3)
        assert len(running.pids()) == 2
        for url in running.own_urls().values():
            async with Client(url) as client:
                await client.produce("mail", "after")
        async with Client(running.url) as client:
            seen: list[str] = []
            while len(seen) < 3:
                seen += [item.text for item in await client.reserve("mail", 10)]
            assert sorted(seen) == ["after", "after", "before"]
        assert await running.end(signal.SIGINT) == 0


async def test_workers_end_with_their_supervisor(path: Path) -> None:
    """When it is killed they stop in order, and the next one starts on the same folder and has everything."""
    async with serving(path) as running:
        async with Client(running.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", "hello")
        await running.end(signal.SIGKILL)
        assert len(running.said("stopped")) == 2
    async with serving(path) as running:
        async with Client(running.url) as client:
            (item,) = await client.reserve("mail", 1)
            assert item.text == "hello"
        assert await running.end(signal.SIGTERM) == 0


async def test_a_reload_at_one_worker_is_one_of_all(path: Path) -> None:
    """Whoever is asked, and also by signal: every worker has the new configuration, also one that starts later."""
    async with serving(path) as running:
        write_config(path, limits={"items_per_request": 7})
        change = {"changes": ["limits.items_per_request is 7"]}
        reload = f"{running.own_urls()[1]}/v1/config.reload"
        async with aiohttp.ClientSession() as session, session.post(reload, json={}) as answer:
            assert (await answer.json())["changes"] == change["changes"]
        await running.until(lambda: len(running.said("configuration reloaded", **change)) == 2)
        write_config(path, limits={"items_per_request": 8}, queues=[{"queue_name": "mail"}])
        running.process.send_signal(signal.SIGHUP)
        await running.until(lambda: running.reloaded("limits.items_per_request is 8") == {0, 1})
        os.kill(running.pids()[0], signal.SIGKILL)
        await running.until(lambda: len(running.said("worker serves")) == 3)
        for url in running.own_urls().values():
            async with Client(url) as client:
                assert (await client.queue_info("mail")).queue_name == "mail"
                with pytest.raises(Exception, match="8"):
                    await client.produce("mail", ["x"] * 9)
        assert await running.end(signal.SIGTERM) == 0


async def test_an_address_that_is_taken_stops_the_start(path: Path) -> None:
    """Also if another server would share it: two must not take each other's calls."""
    async with serving(path) as running:
        port = running.url.rpartition(":")[2]
        second = path.parent / "second" / "querator.yaml"
        second.parent.mkdir()
        write_config(second)
        async with workers(second, "--listen", f"127.0.0.1:{port}") as refused:
            assert await refused.ended() == 1
            assert refused.said("cannot start")
        async with workers(path) as refused:
            assert await refused.ended() == 1
            assert "data folder is in use" in refused.said("cannot start")[0]["reason"]
        assert await running.end(signal.SIGTERM) == 0


async def test_a_worker_that_cannot_start_at_first_ends_all(path: Path) -> None:
    """As one instance would: the reason is told once, and the exit code is 1."""
    write_config(path, storage=[{"name": "one", "driver": "sqlite", "options": {"path": "/dev/null/one.db"}}])
    async with workers(path) as running:
        assert await running.ended() == 1
        assert len(running.said("cannot start", worker=0)) == 1


async def test_grpc_is_shared_too(path: Path) -> None:
    """Every worker offers it at the same address, and new connections are taken there."""
    async with serving(path, "--grpc-listen", "127.0.0.1:0") as running:
        (address,) = {each["grpc"] for each in running.said("worker serves")}
        for _ in range(8):
            async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert await running.end(signal.SIGTERM) == 0


async def test_the_cluster_can_be_looked_at(path: Path) -> None:
    """`querator cluster` lists the instances, the logical queues and the owners of a queue, for people and as JSON."""

    async def ask(*words: str) -> list[str]:
        command = (str(PROGRAM), "cluster", *words, "--url", running.own_urls()[0])
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=clean_environment())
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode().splitlines()

    async with serving(path) as running:
        async with Client(running.own_urls()[0]) as client:
            await client.create_queue("mail", requested_partitions=2)
            await sees_all(client, 2)
        columns, *instances = await ask("info")
        assert columns.split("\t") == ["instance", "host", "addresses", "backends", "version", "state"]
        told = {line.split("\t")[2] for line in instances}
        assert told == {url.removeprefix("http://") for url in running.own_urls().values()}
        assert [line.split("\t")[5] for line in instances].count("leader") == 1
        (document,) = await ask("info", "--json")
        assert {each["queue_name"] for each in json.loads(document)["logical_queues"]} == {"mail"}
        assert len(await ask("info", "--queues")) >= 2
        _, *partitions = await ask("route", "mail")
        assert [line.split("\t")[0] for line in partitions] == ["0", "1"]
        assert {line.split("\t")[2] for line in partitions} <= told
        assert await running.end(signal.SIGTERM) == 0


async def sees_all(client: Client, count: int) -> None:
    """Until the instance that is asked has heard of so many, of where they are, and of who leads."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            known = await client.cluster_info()
            if known.leader and len([each for each in known.instances if each.addresses]) == count:
                return
            await asyncio.sleep(_PAUSE_S)


async def test_workers_may_be_a_part_of_a_larger_cluster(path: Path, tmp_path: Path) -> None:
    """With etcd every worker is an instance of its own, with a door of its own for the others."""
    if etcd_server.installed() is None:
        pytest.skip("etcd is not installed")
    etcd = Etcd(tmp_path / "etcd")
    etcd.start()
    try:
        cluster = {"coordinator": "etcd", "endpoints": etcd.endpoint, "listen": "127.0.0.1:0"}
        write_config(path, cluster=cluster, storage=[sqlite("one"), sqlite("two")])
        async with serving(path) as running:
            urls = running.own_urls()
            async with Client(urls[0]) as first, Client(urls[1]) as second:
                for client in (first, second):
                    await sees_all(client, 2)
                await first.create_queue("mail", requested_partitions=2)
                for client in (first, second):
                    await client.produce("mail", "hello")
                    (item,) = await client.reserve("mail", 1)
                    await client.complete([item])
            assert await running.end(signal.SIGTERM) == 0
    finally:
        etcd.kill()


async def test_nobody_is_sent_in_circles_behind_one_address(path: Path) -> None:
    """Where clients are told one address for all workers, one that asks to be redirected is passed on."""
    write_config(path, cluster={"advertise_http": "127.0.0.1:2319"})
    async with serving(path) as running:
        async with Client(running.url) as client:
            await client.create_queue("mail")
        produce = f"{running.url}/v1/queue.produce"
        body = {"queue_name": "mail", "request_timeout": "10s", "items": [{"utf8": "hello"}]}
        for _ in range(20):  # a connection each, so that both workers are met
            async with (
                aiohttp.ClientSession(headers={"Querator-Route": "redirect"}) as session,
                session.post(produce, json=body, allow_redirects=False) as answer,
            ):
                assert answer.status == 200
        assert await running.end(signal.SIGTERM) == 0


def test_peers_have_a_socket_each_or_a_port_each() -> None:
    """Where a path would be too long for a socket, a port takes its place; configured addresses are counted up."""
    assert [peer_listen(ClusterConfig(), Path("/data"), number) for number in (0, 1)] == [
        "unix:/data/peer-0",
        "unix:/data/peer-1",
    ]
    assert peer_listen(ClusterConfig(), Path("/" + "x" * 100), 0) == "127.0.0.1:0"
    for listen, second in (("a:2321", "a:2322"), ("a:0", "a:0"), ("unix:/p", "unix:/p-1"), ("[::1]:5", "[::1]:6")):
        assert peer_listen(ClusterConfig(listen=listen), Path("/data"), 0) == listen
        assert peer_listen(ClusterConfig(listen=listen), Path("/data"), 1) == second
