"""A client that writes down what it asked and what came of it. It repeats nothing by itself."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import aiohttp

from querator.durations import format_instant, parse_instant
from tests.history.events import Call, Claim, HandOut, Outcome, Sent
from tests.history.recorder import Recorder

# Far above every request_timeout here: an answer that is not there by then never comes.
_ANSWER_PATIENCE_S = 60
_CONTENT = {"Content-Type": "application/json", "Querator-Extended": "1"}


class Unanswered(Exception):
    """The connection was lost, or the client hung up, before the answer was there."""


class Surprise(AssertionError):
    """An answer that no server may give here, or none at all."""


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return f"{self.status} {self.body.get('message', '')}".strip()


class Held(NamedTuple):
    """An item under a lease of this client."""

    queue: str
    partition: int
    item: HandOut


class Place(Protocol):
    """Where calls go: to ``url``, as it is at the moment, and only while it is ``up``."""

    up: asyncio.Event

    @property
    def url(self) -> str: ...


class Client:
    def __init__(self, place: Place, session: aiohttp.ClientSession, recorder: Recorder) -> None:
        self.place = place
        self._session = session
        self._recorder = recorder
        self._tags = 0

    async def produce(
        self,
        queue: str,
        count: int,
        *,
        due_at_ms: Sequence[int] = (),
        timeout_ms: int = 10_000,
        hang_up_s: float | None = None,
    ) -> Outcome:
        """Produce so many new items, the first of them scheduled."""
        due = [*due_at_ms, *[0] * (count - len(due_at_ms))]
        sent = [Sent(tag=self._new_tag(), enqueue_at_ms=due_at_ms) for due_at_ms in due]
        items: list[dict[str, str]] = [{"bytes": base64.b64encode(payload_of(each.tag)).decode()} for each in sent]
        for each, item in zip(sent, items, strict=True):
            if each.enqueue_at_ms:
                item["enqueue_at"] = format_instant(each.enqueue_at_ms)
        number = self._recorder.invoked("produce", queue, sent=sent)
        body = {"queue_name": queue, "request_timeout": f"{timeout_ms}ms", "items": items}
        return await self._change("produce", number, body, hang_up_s)

    async def reserve(
        self,
        queue: str,
        batch_size: int,
        *,
        timeout_ms: int = 500,
        lease_timeout_ms: int = 0,
        hang_up_s: float | None = None,
    ) -> list[Held]:
        """Nothing if nothing was ready in time, or if the answer was lost."""
        number = self._recorder.invoked("reserve", queue, lease_timeout_ms=lease_timeout_ms)
        body = {
            "queue_name": queue,
            "batch_size": batch_size,
            "client_id": self._recorder.client,
            "request_timeout": f"{timeout_ms}ms",
        }
        if lease_timeout_ms:
            body["lease_timeout"] = f"{lease_timeout_ms}ms"
        try:
            answer = await self.post("queue.reserve", body, hang_up_s)
        except Unanswered as lost:
            self._recorder.returned(number, "unknown", reason=str(lost))
            return []
        if answer.status != 200:
            # A reserve that is answered without items has leased none.
            self._recorder.returned(number, _outcome("reserve", answer), reason=answer.text)
            return []
        partition = answer.body.get("partition", 0)
        items = [_hand_out(item) for item in answer.body["items"]]
        self._recorder.returned(number, "ok", partition=partition, items=items)
        return [Held(queue, partition, item) for item in items]

    async def complete(self, held: Sequence[Held], *, hang_up_s: float | None = None) -> Outcome:
        queue, partition, _ = held[0]
        claims = [Claim(tag=each.item.tag, attempts=each.item.attempts) for each in held]
        number = self._recorder.invoked("complete", queue, partition=partition, claims=claims)
        ids = [each.item.id for each in held]
        body = {"queue_name": queue, "partition": partition, "request_timeout": "10s", "ids": ids}
        return await self._change("complete", number, body, hang_up_s)

    async def retry(self, held: Sequence[Held], *, retry_at_ms: int = 0, dead: bool = False) -> Outcome:
        queue, partition, _ = held[0]
        claims = [
            Claim(tag=each.item.tag, attempts=each.item.attempts, retry_at_ms=retry_at_ms, dead=dead) for each in held
        ]
        number = self._recorder.invoked("retry", queue, partition=partition, claims=claims)
        common: dict[str, object] = {"dead": True} if dead else {}
        if retry_at_ms:
            common["retry_at"] = format_instant(retry_at_ms)
        items = [{"id": each.item.id, **common} for each in held]
        return await self._change("retry", number, {"queue_name": queue, "partition": partition, "items": items})

    async def renew(self, held: Sequence[Held], lease_timeout_ms: int, *, hang_up_s: float | None = None) -> Outcome:
        queue, partition, _ = held[0]
        claims = [Claim(tag=each.item.tag, attempts=each.item.attempts) for each in held]
        number = self._recorder.invoked(
            "renew", queue, partition=partition, claims=claims, lease_timeout_ms=lease_timeout_ms
        )
        ids = [each.item.id for each in held]
        body = {"queue_name": queue, "partition": partition, "ids": ids, "lease_timeout": f"{lease_timeout_ms}ms"}
        return await self._change("renew", number, body, hang_up_s)

    async def _change(
        self, call: Call, number: int, body: Mapping[str, object], hang_up_s: float | None = None
    ) -> Outcome:
        try:
            answer = await self.post(f"queue.{call}", body, hang_up_s)
        except Unanswered as lost:
            self._recorder.returned(number, "unknown", reason=str(lost))
            return "unknown"
        outcome = _outcome(call, answer)
        renewed = answer.body.get("items") if call == "renew" else None
        deadline_ms = parse_instant(renewed[0]["lease_deadline"]) if renewed else 0
        self._recorder.returned(
            number, outcome, lease_deadline_ms=deadline_ms, reason="" if outcome == "ok" else answer.text
        )
        return outcome

    async def post(self, name: str, body: Mapping[str, object], hang_up_s: float | None = None) -> Answer:
        """One call, not written down."""
        url = f"{self.place.url}/v1/{name}"
        try:
            async with asyncio.timeout(hang_up_s or _ANSWER_PATIENCE_S):
                async with self._session.post(url, data=json.dumps(body), headers=_CONTENT) as answer:
                    return Answer(answer.status, json.loads(await answer.read()))
        except aiohttp.ClientConnectionError as error:
            raise Unanswered(repr(error)) from None
        except aiohttp.ClientPayloadError as error:
            raise Unanswered(repr(error)) from None
        except TimeoutError:
            if hang_up_s is None:
                raise Surprise(f"{name} was not answered within {_ANSWER_PATIENCE_S} s: {body}") from None
            raise Unanswered("hung up") from None

    def _new_tag(self) -> str:
        self._tags += 1
        return f"{self._recorder.client}-{self._tags}"


def _outcome(call: Call, answer: Answer) -> Outcome:
    if answer.status == 200:
        return "ok"
    if answer.status == 454:
        # The same produce may be sent again, so nothing of it is stored; a reserve has leased nothing.
        return "failed" if call in {"produce", "reserve"} else "unknown"
    if call == "produce" and answer.text.startswith("453 outcome is unknown"):
        return "unknown"
    if (
        answer.status == 400
        and call in {"complete", "retry", "renew"}
        and answer.text.startswith("400 item is not leased")
    ):
        return "failed"
    raise Surprise(f"{call} was answered {answer.text}")


def payload_of(tag: str) -> bytes:
    """Payloads of many sizes, which tell their tag and whether they are whole."""
    check = zlib.crc32(tag.encode())
    return f"{tag}|{check:08x}|".encode() + b"x" * (check % 400)


def _hand_out(item: dict[str, Any]) -> HandOut:
    payload = base64.b64decode(item["bytes"])
    tag = payload.partition(b"|")[0].decode(errors="replace")
    return HandOut(
        tag=tag if payload == payload_of(tag) else f"damaged: {payload!r}",
        id=item["id"],
        attempts=item["attempts"],
        lease_deadline_ms=parse_instant(item["lease_deadline"]),
    )
