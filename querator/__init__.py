"""Querator: what a user's program imports.

The names below are loaded when they are first used, so that importing any module of this package (the command line's
help, a server's core) costs no more than that module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from querator.version import VERSION

if TYPE_CHECKING:
    from querator.client import Client
    from querator.client_items import Produced, ProduceItem, ReservedBatch, ReservedItem, RetryItem, RetryPolicy
    from querator.consume import Consumer
    from querator.errors import (
        Conflict,
        ContentError,
        Forbidden,
        InternalError,
        InvalidRequest,
        NoSuchMethod,
        NoSuchQueue,
        NotFound,
        NotLeased,
        Overloaded,
        PartitionFailing,
        QueratorError,
        RequestFailed,
        RetryRequest,
        Stopping,
        TimedOut,
        TooManyRequests,
        TransportError,
        Unauthorized,
    )
    from querator.producer import Producer
    from querator.sync_client import SyncClient, SyncProducer
    from querator.worker import Reject, RetryLater, Worker

__version__ = VERSION

_HOMES = {
    "Client": "client",
    "Conflict": "errors",
    "Consumer": "consume",
    "ContentError": "errors",
    "Forbidden": "errors",
    "InternalError": "errors",
    "InvalidRequest": "errors",
    "NoSuchMethod": "errors",
    "NoSuchQueue": "errors",
    "NotFound": "errors",
    "NotLeased": "errors",
    "Overloaded": "errors",
    "PartitionFailing": "errors",
    "ProduceItem": "client_items",
    "Produced": "client_items",
    "Producer": "producer",
    "QueratorError": "errors",
    "Reject": "worker",
    "RequestFailed": "errors",
    "ReservedBatch": "client_items",
    "ReservedItem": "client_items",
    "RetryItem": "client_items",
    "RetryLater": "worker",
    "RetryPolicy": "client_items",
    "RetryRequest": "errors",
    "Stopping": "errors",
    "SyncClient": "sync_client",
    "SyncProducer": "sync_client",
    "TimedOut": "errors",
    "TooManyRequests": "errors",
    "TransportError": "errors",
    "Unauthorized": "errors",
    "Worker": "worker",
}

__all__ = [
    "Client",
    "Conflict",
    "Consumer",
    "ContentError",
    "Forbidden",
    "InternalError",
    "InvalidRequest",
    "NoSuchMethod",
    "NoSuchQueue",
    "NotFound",
    "NotLeased",
    "Overloaded",
    "PartitionFailing",
    "ProduceItem",
    "Produced",
    "Producer",
    "QueratorError",
    "Reject",
    "RequestFailed",
    "ReservedBatch",
    "ReservedItem",
    "RetryItem",
    "RetryLater",
    "RetryPolicy",
    "RetryRequest",
    "Stopping",
    "SyncClient",
    "SyncProducer",
    "TimedOut",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Worker",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'querator' has no attribute {name!r}")
    value: object = getattr(import_module(f"querator.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
