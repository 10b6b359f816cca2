"""The bytes of the calls that the load generator makes, encoded once where they do not change."""

from __future__ import annotations

import base64
import random

import msgspec

from bench.http_client import encode_post

REQUEST_TIMEOUT = "60s"
_NUMBER_BYTES = 8
_encode = msgspec.json.Encoder().encode


class Reserved(msgspec.Struct, gc=False):
    """An item of a reserve's answer, without what the generator has no use for."""

    id: str


class ReserveAnswer(msgspec.Struct, gc=False):
    partition: int = 0
    items: list[Reserved] = []


class NumberedItem(msgspec.Struct, gc=False):
    id: str
    payload: bytes = msgspec.field(name="bytes")


class NumberedAnswer(msgspec.Struct, gc=False):
    partition: int = 0
    items: list[NumberedItem] = []


decode_reserved = msgspec.json.Decoder(ReserveAnswer).decode
decode_numbered = msgspec.json.Decoder(NumberedAnswer).decode


class Calls:
    """Encodes one client's requests to one queue."""

    def __init__(self, host: str, queue_name: str, client: int, batch: int, payload_bytes: int) -> None:
        self._host = host
        self._queue_name = queue_name
        self._batch = batch
        source = random.Random(client)
        self._filler = source.randbytes(payload_bytes)
        payloads = [source.randbytes(payload_bytes) for _ in range(batch)]
        self.produce = self._produce(payloads)
        self.reserve = self._post(
            "reserve",
            {"batch_size": batch, "client_id": f"bench-{client}", "request_timeout": REQUEST_TIMEOUT},
        )

    def produce_numbered(self, first: int) -> bytes:
        """A produce whose payloads start with the numbers from ``first`` on."""
        rest = self._filler[_NUMBER_BYTES:]
        return self._produce(
            [number.to_bytes(_NUMBER_BYTES, "big") + rest for number in range(first, first + self._batch)]
        )

    def complete(self, partition: int, ids: list[str]) -> bytes:
        return self._post("complete", {"partition": partition, "request_timeout": REQUEST_TIMEOUT, "ids": ids})

    def _produce(self, payloads: list[bytes]) -> bytes:
        items = [{"bytes": base64.b64encode(payload).decode("ascii")} for payload in payloads]
        return self._post("produce", {"request_timeout": REQUEST_TIMEOUT, "items": items})

    def _post(self, verb: str, fields: dict[str, object]) -> bytes:
        return encode_post(self._host, f"/v1/queue.{verb}", _encode({"queue_name": self._queue_name, **fields}))


def payload_number(payload: bytes) -> int:
    return int.from_bytes(payload[:_NUMBER_BYTES], "big")
