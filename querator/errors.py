"""Every error that Querator answers with, and nothing else.

    QueratorError
    ├── InvalidRequest      400  the request is wrong, or names something that does not exist
    │   ├── NoSuchQueue     400
    │   └── NotLeased       400
    ├── Unauthorized        401
    ├── Forbidden           403
    ├── NotFound            404
    ├── Conflict            409  the request does not fit what is there now
    ├── TooManyRequests     429  retryable
    ├── RequestFailed       453  the request was understood, and cannot be done
    │   └── ProduceInDoubt
    ├── RetryRequest        454  retryable: try the same call again
    │   ├── Overloaded
    │   ├── TimedOut
    │   ├── Stopping
    │   ├── Moved
    │   └── PartitionFailing
    ├── ContentError        455  the body or its type cannot be read
    ├── InternalError       500  retryable: details only in the log
    ├── NoSuchMethod        501  HTTP 501, `no such method; <path>`
    └── TransportError      512  the call did not arrive, or its answer did not (raised by clients)

A message is ``<constant part>; <details>``, so that programs can split at ``;``. ``code`` is the HTTP status and
the envelope's code, ``grpc_status`` the name of what gRPC answers in its place; ``retryable`` says whether the same call
may succeed later without any change.
"""

from __future__ import annotations

from typing import ClassVar


class QueratorError(Exception):
    """The root of the tree; ``constant`` is the part of the message that programs may compare."""

    code: ClassVar[int] = 500
    code_text: ClassVar[str] = "Internal Error"
    grpc_status: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(self, constant: str, details: str = "") -> None:
        self.constant = constant
        self.details = details
        super().__init__(f"{constant}; {details}" if details else constant)

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequest(QueratorError):
    code = 400
    code_text = "Bad Request"
    grpc_status = "INVALID_ARGUMENT"


class NoSuchQueue(InvalidRequest):
    def __init__(self, queue_name: str) -> None:
        super().__init__("queue does not exist", f"no queue is named '{queue_name}'")


class NotLeased(InvalidRequest):
    """The id names an item that is not under lease: completed, expired, or from an earlier hand-out."""

    def __init__(self, item_id: str) -> None:
        super().__init__("item is not leased", f"'{item_id}' is not under a valid lease")


class Unauthorized(QueratorError):
    code = 401
    code_text = "Unauthorized"
    grpc_status = "UNAUTHENTICATED"


class Forbidden(QueratorError):
    code = 403
    code_text = "Forbidden"
    grpc_status = "PERMISSION_DENIED"


class NotFound(QueratorError):
    code = 404
    code_text = "Not Found"
    grpc_status = "NOT_FOUND"


class Conflict(QueratorError):
    code = 409
    code_text = "Conflict"
    grpc_status = "FAILED_PRECONDITION"


class TooManyRequests(QueratorError):
    code = 429
    code_text = "Too Many Requests"
    grpc_status = "RESOURCE_EXHAUSTED"
    retryable = True


class RequestFailed(QueratorError):
    code = 453
    code_text = "Request Failed"
    grpc_status = "FAILED_PRECONDITION"


class ProduceInDoubt(RequestFailed):
    """Sending the same produce again could store its items twice, so this is not retryable."""

    def __init__(self) -> None:
        super().__init__("outcome is unknown", "the items may be stored or not; storage did not answer in time")


class RetryRequest(QueratorError):
    code = 454
    code_text = "Retry Request"
    grpc_status = "UNAVAILABLE"
    retryable = True


class Overloaded(RetryRequest):
    def __init__(self, details: str) -> None:
        super().__init__("overloaded", details)


class TimedOut(RetryRequest):
    def __init__(self, details: str) -> None:
        super().__init__("request timed out", details)


class Stopping(RetryRequest):
    def __init__(self) -> None:
        super().__init__("instance is stopping", "send the request again, to another instance if there is one")


class Moved(RetryRequest):
    """Another instance owns it now, or will in a moment."""

    def __init__(self, queue_name: str) -> None:
        super().__init__("partition has moved", f"another instance takes over partitions of '{queue_name}'")


class PartitionFailing(RetryRequest):
    def __init__(self, queue_name: str, partition: int) -> None:
        super().__init__("partition is failing", f"partition {partition} of '{queue_name}' cannot be written now")


class ContentError(QueratorError):
    code = 455
    code_text = "Client Content Error"
    grpc_status = "INVALID_ARGUMENT"


class InternalError(QueratorError):
    retryable = True

    def __init__(self) -> None:
        super().__init__("Internal Error")


class NoSuchMethod(QueratorError):
    code = 501
    code_text = "Not Implemented"
    grpc_status = "UNIMPLEMENTED"

    def __init__(self, path: str) -> None:
        super().__init__("no such method", path)


class TransportError(QueratorError):
    code = 512
    code_text = "Transport Error"
    grpc_status = "UNAVAILABLE"
    retryable = True
