"""In which form a body comes and an answer goes: JSON or protobuf, listed fields or extended."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from querator.errors import ContentError

JSON = "application/json"
PROTOBUF = "application/protobuf"
_FORM = "application/x-www-form-urlencoded"  # what curl sends unless told otherwise
_MEANS_JSON = frozenset({"", "*/*", "application/*", JSON})


class Form(NamedTuple):
    request_protobuf: bool = False
    answer_protobuf: bool = False
    extended: bool = False

    @property
    def content_type(self) -> str:
        return PROTOBUF if self.answer_protobuf else JSON


PLAIN = Form()


@lru_cache(maxsize=256)
def choose_form(content_type: str, accept: str, extended: str) -> Form:
    """From the values of the headers ``Content-Type``, ``Accept`` and ``Querator-Extended``; empty if absent."""
    return Form(
        request_protobuf=_request_protobuf(content_type),
        answer_protobuf=_answer_protobuf(accept),
        extended=extended.strip() == "1",
    )


@lru_cache(maxsize=256)
def error_form(accept: str) -> Form:
    """How to say that something is wrong to a caller whose headers may be what is wrong."""
    try:
        return Form(answer_protobuf=_answer_protobuf(accept))
    except ContentError:
        return PLAIN


def _request_protobuf(content_type: str) -> bool:
    media = _media_type(content_type)
    if media in _MEANS_JSON:
        return False
    if media == PROTOBUF:
        return True
    hint = " (with curl, say --json in place of -d)" if media == _FORM else ""
    raise ContentError("Content-Type is not supported", f"'{media[:64]}' is neither '{JSON}' nor '{PROTOBUF}'{hint}")


def _answer_protobuf(accept: str) -> bool:
    """The first of the accepted types that we can write; weights other than zero are not compared."""
    for choice in accept.split(","):
        media = _media_type(choice)
        if _is_refused(choice):
            continue
        if media in _MEANS_JSON:
            return False
        if media == PROTOBUF:
            return True
    raise ContentError("Accept is not supported", f"'{accept[:64]}' allows neither '{JSON}' nor '{PROTOBUF}'")


def _media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _is_refused(choice: str) -> bool:
    for parameter in choice.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            return value.strip() in {"0", "0.0", "0.00", "0.000"}
    return False
