"""The names that traces use: OpenTelemetry's conventions for messaging, and ours beside them. Never a payload or key."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

SCOPE: Final = "querator"  # the name under which spans are made

# Spans.
INBOX_SPAN: Final = "inbox"  # a request waits for its turn
COMMIT_SPAN: Final = "commit"  # a turn is written
PROCESS_SPAN: Final = "process"  # a worker's handler runs

# Attributes of OpenTelemetry's conventions.
SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
PARTITION_ID: Final = "messaging.destination.partition.id"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
ERROR_TYPE: Final = "error.type"
STATUS_CODE: Final = "http.response.status_code"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE: Final = "service.instance.id"

# Attributes of ours.
BACKEND: Final = "querator.backend"
EPOCH: Final = "querator.epoch"
COMMIT_NUMBER: Final = "querator.commit.number"
TURN_REQUESTS: Final = "querator.turn.requests"
ATTEMPTS: Final = "querator.item.attempts"

SYSTEM_NAME: Final = "querator"

Attributes: TypeAlias = dict[str, str | int]


class Operation(NamedTuple):
    name: str
    type: str  # one of the types that the conventions know; empty for what only looks after queues


_OPERATIONS: Final = {
    "queue.produce": Operation("produce", "send"),
    "queue.reserve": Operation("reserve", "receive"),
    "queue.lease": Operation("reserve", "receive"),
    "queue.complete": Operation("complete", "settle"),
    "queue.retry": Operation("retry", "settle"),
    "queue.renew": Operation("renew", "settle"),
}
PROCESS: Final = Operation("process", "process")


def operation_of(method: str) -> Operation:
    """What a call of the API is to the conventions."""
    return _OPERATIONS.get(method) or Operation(method, "")


def operation_attributes(operation: Operation) -> Attributes:
    attributes: Attributes = {SYSTEM: SYSTEM_NAME, OPERATION_NAME: operation.name}
    if operation.type:
        attributes[OPERATION_TYPE] = operation.type
    return attributes


def request_attributes(request: Any) -> Attributes:
    """What a request of any call says of where it goes, and of how much: the queue, and the number of items."""
    attributes: Attributes = {}
    queue_name = getattr(request, "queue_name", "")
    if queue_name:
        attributes[DESTINATION] = queue_name
    named = getattr(request, "items", None) or getattr(request, "ids", None)
    if named:
        attributes[BATCH_COUNT] = len(named)
    return attributes
