"""The load generator's parser of HTTP answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.http_client import Answer, AnswerParser, BadAnswer, encode_post


def answer(status: int, body: bytes, header: bytes = b"Content-Length") -> bytes:
    return b"HTTP/1.1 %d Text\r\nServer: x\r\n%b: %d\r\nVia: y\r\n\r\n%b" % (status, header, len(body), body)


@given(
    bodies=st.lists(st.tuples(st.sampled_from([200, 400, 454]), st.binary(max_size=300)), min_size=1, max_size=4),
    data=st.data(),
)
def test_answers_survive_any_cut(bodies: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """However the network cuts an answer into pieces, the same status and body come out."""
    parser = AnswerParser()
    for status, body in bodies:
        stream = answer(status, body)
        cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=5)))
        pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        found = [parser.feed(piece) for piece in pieces]
        assert found[:-1] == [None] * (len(pieces) - 1)
        assert found[-1] == Answer(status, body)


@pytest.mark.parametrize("header", [b"content-length", b"CONTENT-LENGTH", b"Content-Length"])
def test_header_names_have_no_case(header: bytes) -> None:
    """The length is found however its header is written."""
    assert AnswerParser().feed(answer(200, b"ok", header)) == Answer(200, b"ok")


def test_length_may_be_the_last_header() -> None:
    """The length is read to the end of the head as well as to the end of a line."""
    assert AnswerParser().feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") == Answer(200, b"ok")


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        b"a" * 20_000,
    ],
)
def test_what_it_does_not_understand_is_an_error(stream: bytes) -> None:
    """An answer that cannot be read for sure fails the run; it is never counted as a success."""
    with pytest.raises(BadAnswer):
        AnswerParser().feed(stream)


def test_post_is_one_buffer_with_its_length() -> None:
    """A request carries the length of its body, and the body follows its head."""
    head, body = encode_post("127.0.0.1:1", "/v1/queue.produce", b"{}").split(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/queue.produce HTTP/1.1\r\n")
    assert b"Content-Length: 2" in head
    assert body == b"{}"
