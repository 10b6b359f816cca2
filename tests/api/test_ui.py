"""The dashboard's files as a browser gets them; what they show is in tests/browser."""

from __future__ import annotations

import re

import pytest

from api.ui_files import ui_files
from tests.api.conftest import Api

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_every_file_is_served_under_a_strict_policy(api: Api) -> None:
    """Each file has its type, cannot be framed or sniffed, and lets a browser load nothing from elsewhere."""
    assert len(ui_files()) > 10
    for path, file in ui_files().items():
        answered = await api.send(path, None, method="GET")
        assert (answered.status, answered.body) == (200, file.body)
        assert answered.headers["Content-Type"] == file.content_type
        assert answered.headers["X-Content-Type-Options"] == "nosniff"
        policy = answered.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


async def test_an_unchanged_file_is_not_sent_again(api: Api) -> None:
    """A browser that names the ETag is told 304; another tag gets the file."""
    tag = (await api.send("/ui/app.js", None, method="GET")).headers["ETag"]
    for known, status in ((tag, 304), (f'"other", W/{tag}', 304), ('"other"', 200)):
        answered = await api.send("/ui/app.js", None, {"If-None-Match": known}, method="GET")
        assert (answered.status, answered.headers["ETag"]) == (status, tag)
        assert bool(answered.body) == (status == 200)


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/"])
async def test_a_browser_finds_the_dashboard(api: Api, path: str) -> None:
    """Whoever reads HTML gets to the page from the root and from `/ui`."""
    answered = await api.send(path, None, HTML, method="GET")
    assert answered.status == 200
    assert b"<title>Querator</title>" in answered.body


@pytest.mark.parametrize("path", ["/ui/made-up.js", "/ui/../server.py", "/ui/%2e%2e/server.py", "/ui//app.js"])
async def test_nothing_else_is_served(api: Api, path: str) -> None:
    """What is not a file of the dashboard is an unknown method, as everywhere."""
    assert (await api.send(path, None, method="GET")).status == 501


async def test_the_page_needs_nothing_from_elsewhere() -> None:
    """No file names another server, holds an inline script or style, or puts text in as markup."""
    for path, file in ui_files().items():
        text = file.body.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=\"", text), path
