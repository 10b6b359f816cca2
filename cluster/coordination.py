"""Opens the coordination that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cluster.coordinator import Coordinator
from cluster.etcd_options import EtcdOptions
from cluster.one_host import OneHostCoordinator
from querator.config import ClusterConfig

FILE = "cluster.db"  # in the data folder


async def open_coordinator(config: ClusterConfig, data_dir: Path) -> Coordinator:
    """Raises `CoordinationError` if it cannot be opened. That etcd does not answer shows with the first call."""
    if config.coordinator == "local":
        return await OneHostCoordinator.open(data_dir / FILE)
    from cluster.etcd import EtcdCoordinator  # whoever is alone does not load gRPC

    return await EtcdCoordinator.open(_etcd_options(config))


def find_mistakes(config: ClusterConfig) -> Iterator[tuple[str, str]]:
    """What is wrong with how etcd is to be reached: the option, and why."""
    if config.coordinator == "etcd":
        yield from _etcd_options(config).find_mistakes()


def _etcd_options(config: ClusterConfig) -> EtcdOptions:
    return EtcdOptions(
        endpoints=config.all_endpoints(),
        prefix=config.prefix,
        ca_file=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
        user=config.user,
        password=config.password,
    )
