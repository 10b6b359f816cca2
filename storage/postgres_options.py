"""How a PostgreSQL backend is configured: its options, what can be wrong with them, and what may be shown of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec

from querator.durations import parse_duration

SCHEMES = ("postgresql", "postgres")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
MAX_POOL_SIZE = 100

# What PostgreSQL takes without quotes, and does not shorten or keep for itself.
_IDENTIFIER = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", re.ASCII)
_TIMEOUTS_MS = (10, 3_600_000)


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    dsn: str
    schema: str = "querator"
    pool_size: int = 8  # connections that commit; a few more read
    connect_timeout: str = "5s"
    command_timeout: str = "10s"

    @property
    def connect_timeout_s(self) -> float:
        return parse_duration(self.connect_timeout) / 1000

    @property
    def command_timeout_s(self) -> float:
        return parse_duration(self.command_timeout) / 1000

    @property
    def address(self) -> str:
        """Where the database is, for people: no user and no password."""
        parts = urlsplit(self.dsn)
        hosts = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", [])) or "localhost"
        return f"{unquote(hosts)}{parts.path}"

    def without_secrets(self, text: str) -> str:
        """The text, without the password of the dsn wherever it may have got into it."""
        for secret in _secrets(urlsplit(self.dsn)):
            text = text.replace(secret, "***")
        return text


def find_option_mistakes(options: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """The option, "is missing" or "is invalid", and the details, which never repeat the dsn."""
    if options.get("dsn") is None:
        yield "dsn", "is missing", "postgres needs a text such as postgresql://user@host/database"
    else:
        yield from (("dsn", "is invalid", details) for details in _dsn_mistakes(options["dsn"]))
    schema = options.get("schema", "querator")
    if not isinstance(schema, str) or not _IDENTIFIER.fullmatch(schema):
        yield "schema", "is invalid", "it must be up to 63 of a-z, 0-9 and _, not begin with a digit nor with pg_"
    size = options.get("pool_size", 1)
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_POOL_SIZE:
        yield "pool_size", "is invalid", f"it must be a number from 1 to {MAX_POOL_SIZE}"
    for option in ("connect_timeout", "command_timeout"):
        if option in options and not _is_timeout(options[option]):
            yield option, "is invalid", "it must be a duration such as '5s', from 10ms to 1h"


def _dsn_mistakes(dsn: object) -> Iterator[str]:
    if not isinstance(dsn, str) or "\x00" in dsn:
        yield "it must be a text"
        return
    try:
        parts = urlsplit(dsn)
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        yield "it cannot be read as a URL"
        return
    if parts.scheme not in SCHEMES:
        yield "it must begin with postgresql://"
    if parts.fragment:
        yield "it has a '#'; in a password it is written as %23"
    if any(mode not in SSL_MODES for mode in query.get("sslmode", [])):
        yield f"sslmode must be one of {', '.join(SSL_MODES)}"


def _is_timeout(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        duration_ms = parse_duration(value)
    except ValueError:
        return False
    return _TIMEOUTS_MS[0] <= duration_ms <= _TIMEOUTS_MS[1]


def _secrets(parts: SplitResult) -> set[str]:
    query: dict[str, list[Any]] = parse_qs(parts.query)
    found = {parts.password or "", unquote(parts.password or ""), *query.get("password", [])}
    return found - {""}
