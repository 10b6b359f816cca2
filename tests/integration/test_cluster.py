"""Instances that are put together by their configuration: they find each other through etcd, and share the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.etcd_server import Etcd, installed
from querator.daemon import Instance, read_config
from querator.errors import RequestFailed
from tests.integration.running import Running, memory, running, sqlite, until, write_config

PEER = "127.0.0.1:0"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    if installed() is None:
        pytest.skip("etcd is not installed")
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


def in_cluster(etcd: Etcd, prefix: Path, **options: Any) -> dict[str, Any]:
    """The section `cluster`; each test has its own keys."""
    return {"coordinator": "etcd", "endpoints": [etcd.endpoint], "prefix": str(prefix), "listen": PEER, **options}


async def member(stack: AsyncExitStack, folder: Path, **options: Any) -> Running:
    folder.mkdir()
    return await stack.enter_async_context(running(folder / "querator.yaml", **options))


async def test_every_instance_takes_every_call(etcd: Etcd, tmp_path: Path) -> None:
    """A queue that is made at one instance, and whose items lie there, is used through the other one."""
    async with AsyncExitStack() as stack:
        cluster = in_cluster(etcd, tmp_path)
        one = await member(stack, tmp_path / "one", cluster=cluster, storage=[sqlite("one-0")])
        two = await member(stack, tmp_path / "two", cluster=cluster, storage=[sqlite("two-0", 0.0)])
        await one.ok("queues.create", queue_name="mail")
        assert await one.places("mail") == {"one-0": ["available"]}

        async def is_known() -> bool:
            return (await two.call("queues.info", queue_name="mail"))[0] == 200

        await until(is_known)
        await two.ok("queue.produce", queue_name="mail", request_timeout="10s", items=[{"utf8": "hello"}])
        got = await two.ok("queue.reserve", queue_name="mail", client_id="me", batch_size=1, request_timeout="10s")
        ids = [item["id"] for item in got["items"]]
        assert len(ids) == 1
        await one.ok(
            "queue.complete", queue_name="mail", partition=got.get("partition", 0), request_timeout="10s", ids=ids
        )


async def test_two_files_cannot_have_one_name(etcd: Etcd, tmp_path: Path) -> None:
    """A second instance with a file of the same backend's name does not start, and changes nothing for the first."""
    cluster = in_cluster(etcd, tmp_path, host="alpha")
    async with AsyncExitStack() as stack:
        one = await member(stack, tmp_path / "one", cluster=cluster, storage=[sqlite("local-0")])
        path = tmp_path / "two" / "querator.yaml"
        path.parent.mkdir()
        write_config(path, cluster=cluster, storage=[memory("other"), sqlite("local-0")])
        instance = Instance(read_config(path, {}).checked())
        with pytest.raises(RequestFailed, match=r"'local-0' is already .* 'alpha'"):
            await instance.start()
        one.write(cluster=cluster, storage=[sqlite("local-0"), sqlite("local-1")])
        await one.ok("config.reload")
        write_config(path, cluster=cluster, storage=[memory("other"), sqlite("local-1")])
        instance = Instance(read_config(path, {}).checked())
        with pytest.raises(RequestFailed, match=r"'local-1' is already"):
            await instance.start()
        await one.ok("queues.create", queue_name="mail")
    async with AsyncExitStack() as stack:
        again = await stack.enter_async_context(
            running(tmp_path / "one" / "querator.yaml", cluster=cluster, storage=[sqlite("local-0"), sqlite("local-1")])
        )
        assert sum(map(len, (await again.places("mail")).values())) == 1
