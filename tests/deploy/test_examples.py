"""The example configurations: each is taken by the program's own check, and a server starts with it and serves."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from bench import etcd_server
from bench.etcd_server import Etcd
from bench.postgres_server import NOT_DURABLE, Postgres, installed, private_postgres
from querator import Client
from tests.deploy.program import ANY_PORT, environment, program, serving

FOLDER = Path(__file__).resolve().parents[2] / "deploy/examples"
EXAMPLES = ["cluster.yaml", "observability.yaml", "postgres.yaml", "several-backends.yaml", "single.yaml"]
PASSWORD = "of the test"
NOBODY = "127.0.0.1:9"  # no collector listens there


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server that asks the user of the examples for a password."""
    if installed() is None:
        pytest.skip("PostgreSQL is not installed")
    with private_postgres(NOT_DURABLE, hba=["host querator querator all scram-sha-256"]) as server:
        yield server


@pytest.fixture
async def database(postgres: Postgres) -> str:
    """The address of an empty database of the examples' names, without user."""
    connection = await asyncpg.connect(postgres.address)
    try:
        await connection.execute("DROP DATABASE IF EXISTS querator WITH (FORCE)")
        await connection.execute("DROP ROLE IF EXISTS querator")
        await connection.execute(f"CREATE ROLE querator LOGIN PASSWORD '{PASSWORD}'")
        await connection.execute("CREATE DATABASE querator OWNER querator")
    finally:
        await connection.close()
    return f"127.0.0.1:{postgres.port}"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    if etcd_server.installed() is None:
        pytest.skip("etcd is not installed")
    server = Etcd(tmp_path_factory.mktemp("etcd") / "server")
    server.start()
    yield server
    server.kill()


def here(name: str, folder: Path, database: str, etcd: Etcd | None = None) -> Path:
    """The example with the hosts and ports of this machine in place of those of the compose file."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    text = text.replace("@postgres/", f"@{database}/").replace("collector:4317", NOBODY)
    if etcd is not None:
        text = text.replace("etcd:2379", etcd.endpoint).replace("127.0.0.1:2321", ANY_PORT)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_all_examples_are_known() -> None:
    """No example escapes the tests here."""
    assert sorted(path.name for path in FOLDER.iterdir()) == EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_check_takes_it(name: str) -> None:
    """`querator config check` finds no mistake in the file as it lies there."""
    command = [str(program()), "config", "check", str(FOLDER / name)]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
async def test_a_server_serves_with_it(name: str, tmp_path: Path, database: str, etcd: Etcd) -> None:
    """A server starts with the file, makes its queues, hands out what it is given, and stops in order."""
    path = here(name, tmp_path, database, etcd)
    env = {"QUERATOR_LISTEN": ANY_PORT, "QUERATOR_DATA_DIR": str(tmp_path / "data"), "PGPASSWORD": PASSWORD}
    async with serving(program(), "serve", "--config", path, folder=tmp_path, env=env) as server:
        async with Client(server.url) as client:
            assert (await client.health()).status == "pass"
            assert (await client.queue_info("mail")).dead_queue == "mail-dead"
            await client.produce("mail", "hello")
            (item,) = await client.reserve("mail", 1)
            assert item.text == "hello"
            await client.complete([item])
        assert await server.end(signal.SIGTERM) == 0


async def test_partitions_are_spread_as_the_file_says(tmp_path: Path, database: str) -> None:
    """The example of several backends has its queue's partitions where its comment says."""
    path = here("several-backends.yaml", tmp_path, database)
    env = {"QUERATOR_LISTEN": ANY_PORT, "QUERATOR_DATA_DIR": str(tmp_path / "data"), "PGPASSWORD": PASSWORD}
    async with serving(program(), "serve", "--config", path, folder=tmp_path, env=env) as server:
        async with Client(server.url) as client:
            info = await client.queue_info("mail")
        spread = Counter(partition.backend for partition in info.partitions)
        assert await server.end(signal.SIGTERM) == 0
    assert spread == {"local-0": 4, "local-1": 2, "pg-a": 2}
