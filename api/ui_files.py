"""The dashboard's files as they are served at `/ui/`: read once, checked by ETag, under a policy that lets nothing else in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from api.hall import NOSNIFF, SERVER

_FOLDER = Path(__file__).parent / "ui"
_PREFIX = "/ui/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # keep it, and ask whether it is still so: an upgrade is seen at once
    "Server": SERVER,
    NOSNIFF[0]: NOSNIFF[1],
}


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


@cache
def ui_files() -> Mapping[str, _File]:
    """All files, by the path at which they are served."""
    files: dict[str, _File] = {}
    for path in sorted(_FOLDER.iterdir()):
        content_type = _TYPES.get(path.suffix)
        if content_type is not None:
            body = path.read_bytes()
            files[_PREFIX + path.name] = _File(body, content_type, f'"{sha256(body).hexdigest()[:32]}"')
    files[_PREFIX] = files[f"{_PREFIX}index.html"]
    return files


def is_ui(path: str) -> bool:
    return path == "/ui" or path in ui_files()


def ui_response(path: str, headers: Mapping[str, str]) -> web.Response | None:
    """The answer to a GET of the dashboard, or of the root by somebody who reads HTML; None for everybody else."""
    if path == "/ui" or (path == "/" and "text/html" in headers.get("Accept", "")):
        return web.Response(status=307, headers={**_HEADERS, "Location": "ui/", "Vary": "Accept"})
    file = ui_files().get(path) if path.startswith(_PREFIX) else None
    if file is None:
        return None
    known = headers.get("If-None-Match", "")
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    if file.etag in tags or known.strip() == "*":
        return web.Response(status=304, headers={**_HEADERS, "ETag": file.etag})
    return web.Response(body=file.body, headers={**_HEADERS, "ETag": file.etag, "Content-Type": file.content_type})
