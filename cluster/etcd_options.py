"""How etcd is reached."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.coordinator import CoordinationError

_HTTP, _HTTPS = "http://", "https://"


class EtcdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    endpoints: tuple[str, ...]  # HOST:PORT of the members, with https:// before each for TLS
    prefix: str = "/querator/"  # before every key; clusters that share an etcd have one each
    ca_file: str = ""  # whose certificates are believed; with one of these files, TLS is used
    cert_file: str = ""  # by which we show who we are
    key_file: str = ""
    user: str = ""
    password: str = ""
    request_timeout_ms: int = 5000  # for a call with all its repetitions
    ping_interval_ms: int = 10_000  # on a connection on which nothing else happens; etcd allows no less than 5 s
    message_bytes: int = 64 * 1024 * 1024  # of an answer of etcd; what it accepts is etcd's own option

    def key_prefix(self) -> str:
        """The prefix, ending with a slash."""
        return self.prefix.rstrip("/") + "/"

    def targets(self) -> list[str]:
        return [each.removeprefix(_HTTP).removeprefix(_HTTPS).rstrip("/") for each in self.endpoints]

    def uses_tls(self) -> bool:
        return bool(self.ca_file or self.cert_file) or self.endpoints[0].startswith(_HTTPS)

    def find_mistakes(self) -> Iterator[tuple[str, str]]:
        """What cannot work: the option, and what is wrong with it."""
        if not self.endpoints:
            yield "endpoints", "endpoints must name at least one member of etcd"
            return
        for each, target in zip(self.endpoints, self.targets(), strict=True):
            host, _, port = target.rpartition(":")
            if not host or not port.isdigit():
                yield "endpoints", f"endpoints must be HOST:PORT, and '{each}' is not"
            elif each.startswith(_HTTP if self.uses_tls() else _HTTPS):
                yield "endpoints", f"endpoints must all be reached with TLS or all without, see '{each}'"
        if bool(self.cert_file) != bool(self.key_file):
            yield "cert_file", "cert_file and key_file belong together"
        if bool(self.user) != bool(self.password):
            yield "user", "user and password belong together"
        for option in ("request_timeout_ms", "ping_interval_ms", "message_bytes"):
            if getattr(self, option) <= 0:
                yield option, f"{option} must be positive"

    def check(self) -> None:
        """Raises for what cannot work, naming the option."""
        for _, mistake in self.find_mistakes():
            raise CoordinationError(mistake)
