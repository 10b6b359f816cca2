"""Claims on the names of backends: in one cluster, one name is one place.

Instances find partitions by the name of their backend. Two that had a file each under the same name would both believe
that they reach all its partitions.

backends/<name>      Claim; it stays when its instance goes
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from cluster.coordinator import CoordinationError, Coordinator
from querator.errors import RequestFailed, RetryRequest

_PREFIX = "backends/"
_HOME_FILE = "home"
SHARED = ""  # the home of what every host can reach


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    home: str  # the data folder that has the file, by the name that `home_of` gave it; or `SHARED`
    host: str  # which claimed it, for people


_decode = msgspec.json.Decoder(Claim).decode


async def claim_backend(coordinator: Coordinator, name: str, home: str, host: str) -> None:
    """Raises `RequestFailed` if the name is that of another place."""
    try:
        claim = await _claim(coordinator, f"{_PREFIX}{name}", Claim(home=home, host=host))
    except CoordinationError as error:
        raise RetryRequest("coordination does not answer", str(error)) from error
    if claim.home != home:
        details = f"{_owner(claim)}, and storage[].name must be unique in a cluster: give this backend another one"
        raise RequestFailed(f"backend '{name}' is already another place", details)


async def _claim(coordinator: Coordinator, key: str, mine: Claim) -> Claim:
    """Whose it is then."""
    while (entry := await coordinator.get(key)) is None:
        if await coordinator.transact(expected={key: 0}, puts={key: msgspec.json.encode(mine)}) is not None:
            return mine
    return _decode(entry.value)


def _owner(claim: Claim) -> str:
    if claim.home == SHARED:
        return f"instances on '{claim.host}' and elsewhere share it"
    return f"it is a file on '{claim.host}'"


def home_of(data_dir: Path) -> str:
    """A name for this folder that it keeps, wherever it is moved and whatever its host is called."""
    path = data_dir / _HOME_FILE
    if not path.exists():
        token = secrets.token_hex(8)
        draft = data_dir / f"{_HOME_FILE}.{token}"
        with draft.open("w", encoding="utf-8") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # whole or not at all, and only the first of several
        except FileExistsError:
            pass  # the other one is as good
        finally:
            draft.unlink()
    return path.read_text(encoding="utf-8")
