"""Instances as tests introduce them to a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from cluster.membership import Member
from querator.waist import Backend


def member_with(backends: Mapping[str, Backend], name: str = "") -> Member:
    """Each time another one, unless it is named."""
    return Member(
        id=name or secrets.token_hex(4),
        host="here",
        addresses=(),
        version="1",
        started_at_ms=1,
        backends={name: backend.affinity for name, backend in backends.items()},
        fleeting=tuple(name for name, backend in backends.items() if backend.driver == "memory"),
    )
