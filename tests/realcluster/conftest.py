"""The servers under the cluster, started once for all tests of this folder; each test leaves both running."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bench import etcd_server, postgres_server
from bench.etcd_server import Etcd
from bench.postgres_server import NOT_DURABLE, Postgres, private_postgres
from tests.realcluster.cluster import Cluster, cluster_in
from tests.realcluster.verdict import Tell, teller


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    if etcd_server.installed() is None:
        pytest.skip(f"etcd is not installed; {etcd_server.INSTALL}")
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    if postgres_server.installed() is None:
        pytest.skip(f"PostgreSQL is not installed; {postgres_server.INSTALL}")
    with private_postgres(NOT_DURABLE) as server:
        yield server


@pytest.fixture
async def cluster(tmp_path: Path, etcd: Etcd, database: Postgres) -> AsyncIterator[Cluster]:
    async with cluster_in(tmp_path, etcd, database) as running:
        yield running


@pytest.fixture
def tell(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]) -> Tell:
    return teller(pytestconfig, capsys)
