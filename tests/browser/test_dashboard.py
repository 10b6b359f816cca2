"""The dashboard in a real Chromium, against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from querator import Client
from querator.clock import SystemClock
from querator.durations import format_instant
from tests.api.conftest import Api
from tests.browser.conftest import Browser, playwright_api
from tests.browser.looks import figure_shows, keep, overflow, row_shows, shows
from tests.crash.server import server_in

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect = playwright_api.expect

TWO_POINTS = re.compile(r"^M[\d.]+ [\d.]+L")
HOSTILE = [
    "<img/src=x/onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "javascript:alert(3)",
    "a/b?c#d%2F%zz&amp;'`${1}",
    "очередь-☃",
]


def texts(*values: str) -> list[dict[str, str]]:
    return [{"utf8": value} for value in values]


def in_an_hour() -> str:
    return format_instant(SystemClock().now_ms() + 3_600_000)


async def fill(api: Api) -> None:
    """Queues as they come: one that is used, one with a dead item, one that is paused."""
    await api.ok("queues.create", queue_name="dead")
    await api.ok("queues.create", queue_name="mail", dead_queue="dead", requested_partitions=3, namespace="shop")
    await api.ok("queues.create", queue_name="exports")
    await api.ok("queue.pause", queue_name="exports", produce=True)
    await api.ok(
        "queue.produce", queue_name="mail", items=[*texts("a", "b", "c"), {"utf8": "d", "enqueue_at": in_an_hour()}]
    )
    await api.ok("queue.reserve", queue_name="mail", client_id="c", batch_size=1, request_timeout="5s")


async def test_an_empty_server_says_what_to_do(browser: Browser, api: Api) -> None:
    """Without a queue the page says so and how to make one; the first queue appears by itself."""
    async with browser.page(api.url) as page:
        await shows(page.locator(".empty"), "There is no queue yet. Create one with: querator create mail")
        await keep(page, "queues-empty")
        await api.ok("queues.create", queue_name="mail")
        await row_shows(page, "mail", "Ready", "0")
        await expect(page.locator(".empty")).to_be_hidden()


async def test_queues_show_what_the_api_says(browser: Browser, api: Api) -> None:
    """The table has the counts and the state of each queue, and follows what is produced without a reload."""
    await fill(api)
    async with browser.page(api.url) as page:
        for label, text in (("Ready", "2"), ("Leased", "1"), ("Scheduled", "1")):
            await row_shows(page, "mail", label, text)
        exports = page.locator("tbody tr").filter(has_text="exports")
        await shows(exports.locator(".badge"), "produce paused")
        await api.ok("queue.produce", queue_name="mail", items=texts(*map(str, range(40))))
        await row_shows(page, "mail", "Ready", "42")
        await page.get_by_label("Filter").fill("MAI")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_label("Filter").fill("")
        await page.get_by_label("Namespace").fill("shop")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await keep(page, "queues-some")


async def test_a_queue_shows_its_partitions_and_flow(browser: Browser, api: Api) -> None:
    """The page of a queue has its numbers, a tile per partition with backend, state and owner, and rates that move."""
    await fill(api)
    async with browser.page(api.url, "queue/mail") as page:
        await figure_shows(page, "Ready", "2")
        await figure_shows(page, "In/s", "0")
        await expect(page.locator(".tile")).to_have_count(3)
        await shows(page.locator(".tile .badge").first, "available")
        await expect(page.locator(".group h3")).to_contain_text("memory-0")
        await expect(page.locator(".settings")).to_contain_text("dead")
        await api.ok("queue.produce", queue_name="mail", items=texts(*map(str, range(500))))
        await figure_shows(page, "Ready", "502")
        drawn = page.locator(".plot .line.s0").first
        await expect(drawn).to_have_attribute("d", TWO_POINTS)
        await keep(page, "queue")


async def test_items_and_payloads_are_shown_on_demand(browser: Browser, api: Api) -> None:
    """A partition's items are listed when asked for, the payload after a second question, scheduled ones apart."""
    await api.ok("queues.create", queue_name="mail")
    hostile = "<b>bold</b><script>alert(4)</script>"
    await api.ok(
        "queue.produce", queue_name="mail", items=[{"utf8": hostile}, {"utf8": "later", "enqueue_at": in_an_hour()}]
    )
    async with browser.page(api.url, "queue/mail") as page:
        await page.locator(".tile").click()
        await expect(page.locator(".item")).to_have_count(1)
        await expect(page.locator(".item pre")).to_be_hidden()
        await page.get_by_role("button", name="Show payload").click()
        await shows(page.locator(".item pre"), hostile)
        await page.get_by_role("button", name="Scheduled", exact=True).click()
        await expect(page.locator(".item .badge")).to_have_text("scheduled")


async def test_a_dead_item_shows_its_origin(browser: Browser, api: Api) -> None:
    """An item of a dead queue names the item that it was."""
    await fill(api)
    got = await api.ok("queue.reserve", queue_name="mail", client_id="c", batch_size=1, request_timeout="5s")
    [item] = got["items"]
    retried = [{"id": item["id"], "dead": True}]
    await api.ok("queue.retry", queue_name="mail", partition=got.get("partition", 0), items=retried)
    async with browser.page(api.url, "queue/dead") as page:
        await figure_shows(page, "Ready", "1")
        await page.locator(".tile").click()
        await expect(page.locator(".facts")).to_contain_text(item["id"])


async def test_hostile_names_are_text(browser: Browser, api: Api) -> None:
    """Names that look like markup, scripts or addresses are shown letter by letter, and lead to their queue."""
    for name in HOSTILE:
        await api.ok("queues.create", queue_name=name)
    async with browser.page(api.url) as page:
        await expect(page.locator("tbody tr")).to_have_count(len(HOSTILE))
        shown = await page.locator("tbody th a").all_text_contents()
        assert sorted(shown) == sorted(HOSTILE)
        assert await page.locator("main img, main script").count() == 0
        for name in HOSTILE:
            await page.get_by_role("link", name="Queues", exact=True).click()
            await page.get_by_role("link", name=name, exact=True).click()
            await shows(page.locator("h1"), name)
            await figure_shows(page, "Ready", "0")


async def test_pause_and_resume_by_keyboard(browser: Browser, api: Api) -> None:
    """Without a mouse a queue is paused after a question, can be left alone by Escape, and is resumed."""
    await api.ok("queues.create", queue_name="mail")
    async with browser.page(api.url, "queue/mail") as page:
        button = page.locator(".actions button").first
        await shows(button, "Pause produce")
        await expect(button).to_be_enabled()
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_have_count(0)
        assert not (await api.ok("queues.info", {"Querator-Extended": "1"}, queue_name="mail")).get("produce_paused")
        for wanted, paused in (("Resume produce", True), ("Pause produce", False)):
            await expect(button).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(page.locator("dialog")).to_be_visible()
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await shows(button, wanted)
            info = await api.ok("queues.info", {"Querator-Extended": "1"}, queue_name="mail")
            assert info.get("produce_paused", False) is paused


async def test_clear_asks_first(browser: Browser, api: Api) -> None:
    """A queue is emptied only after the question was answered, and then of what was chosen."""
    await api.ok("queues.create", queue_name="mail")
    await api.ok("queue.produce", queue_name="mail", items=texts("a", "b"))
    async with browser.page(api.url, "queue/mail") as page:
        await figure_shows(page, "Ready", "2")
        await page.get_by_role("button", name="Clear…").click()
        await page.get_by_role("dialog").get_by_role("button", name="Clear").click()
        await figure_shows(page, "Ready", "0")


async def test_storage_and_cluster(browser: Browser, api: Api) -> None:
    """The backends with their health and partitions, and the one instance, which leads and owns all of them."""
    await fill(api)
    async with browser.page(api.url, "storage") as page:
        row = page.locator("tbody tr")
        await shows(row.locator("th"), "memory-0")
        await shows(row.locator(".badge"), "healthy")
        await shows(row.locator('td[data-label="Partitions"]'), "5")
        await page.get_by_role("link", name="Cluster").click()
        await shows(page.locator("tbody tr .badge").first, "leader")
        await shows(page.locator('td[data-label="Partitions"]'), "5")
        await keep(page, "cluster")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_needs_no_scrolling_sideways(browser: Browser, api: Api, scheme: str) -> None:
    """At 360 pixels every page fits, with a long name too; the theme follows the system, and the switch overrules it."""
    await fill(api)
    long_name = "a-queue-with-a-name-that-goes-on-" * 4
    await api.ok("queues.create", queue_name=long_name, requested_partitions=2)
    async with browser.page(api.url, viewport={"width": 360, "height": 780}, color_scheme=scheme) as page:
        await row_shows(page, long_name, "Ready", "0")
        for path in ("queues", f"queue/{long_name}", "queue/mail", "storage", "cluster"):
            await page.goto(f"{api.url}/ui/#/{path}")
            await expect(page.locator(".notice").first).not_to_have_text("loading")
            assert await overflow(page) <= 0, path
            await keep(page, f"phone-{scheme}-{path.partition('/')[0]}")
        theme = page.locator("#theme")
        before = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        for _ in range(2 if scheme == "light" else 1):
            await theme.click()
        await shows(theme, "Theme: dark" if scheme == "light" else "Theme: light")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.slow
async def test_a_thousand_queues(browser: Browser, api: Api) -> None:
    """All can be found by paging, filter and sorting, while only the queues that are seen are asked for."""
    names = [f"queue-{number:04}" for number in range(1000)]
    for start in range(0, len(names), 50):
        async with asyncio.TaskGroup() as group:
            for name in names[start : start + 50]:
                group.create_task(api.ok("queues.create", queue_name=name))
    await api.ok("queue.produce", queue_name="queue-0777", items=texts("a", "b", "c"))
    async with browser.page(api.url) as page:
        asked: set[str] = set()

        def note(request: Any) -> None:
            asked.add(json.loads(request.post_data or "{}").get("queue_name", ""))

        page.on("request", note)
        await row_shows(page, "queue-0049", "Ready", "0")
        await shows(page.locator(".range"), "1–50 of 1,000")
        await page.get_by_role("button", name="Next").click()
        await row_shows(page, "queue-0099", "Ready", "0")
        assert asked - {""} <= set(names[:100])
        page.remove_listener("request", note)
        await keep(page, "queues-thousand")
        await page.get_by_role("button", name="Ready").click()
        await shows(page.locator("tbody th a").first, "queue-0777")
        await page.get_by_label("Filter").fill("0999")
        await row_shows(page, "queue-0999", "Ready", "0")
        await shows(page.locator(".range"), "1–1 of 1")


async def test_errors_are_shown_in_place(browser: Browser, api: Api) -> None:
    """A 454 stands in the row of its queue, totals that are not whole are marked, and both go when the answer is well."""
    await api.ok("queues.create", queue_name="mail")
    said: dict[str, Any] = {"status": 454, "json": {"code": 454, "message": "no partition can be used"}}

    async def answer(route: Any) -> None:
        await (route.fulfill(**said) if said else route.continue_())

    async with browser.page(api.url) as page:
        await page.route("**/v1/queue.stats", answer)
        await shows(page.locator("tbody .badge"), "454: try again")
        whole = await api.ok("queue.stats", {"Querator-Extended": "1"}, queue_name="mail")
        said.update(status=200, json={**whole, "partial": True, "missing": ["another"]})
        await shows(page.locator("tbody .badge"), "partial")
        said.clear()
        await shows(page.locator("tbody .badge"), "available")


async def test_a_queue_that_is_deleted_and_comes_back(browser: Browser, api: Api) -> None:
    """The page of a queue that is gone says so, and shows it again when it is there."""
    await api.ok("queues.create", queue_name="mail")
    async with browser.page(api.url, "queue/mail") as page:
        await figure_shows(page, "Ready", "0")
        await api.ok("queues.delete", queue_name="mail")
        await expect(page.locator(".title .notice")).to_contain_text("queue does not exist")
        await api.ok("queues.create", queue_name="mail", requested_partitions=2)
        await shows(page.locator(".title .notice"), "2 partitions")


def port_for_long() -> int:
    """A free port that the system gives to nobody by itself, so that it is still free after a restart."""
    for port in range(21_000, 31_000):
        with socket.socket() as listener, suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


async def test_a_restart_is_survived(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server is gone the page says so and keeps what it showed; when it is back the page goes on by itself."""
    port = port_for_long()
    monkeypatch.setattr("tests.crash.server._free_port", lambda: port)
    async with server_in(tmp_path) as server:
        await server.start()
        async with Client(server.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", ["a", "b"])
        async with browser.page(server.url) as page:
            await row_shows(page, "mail", "Ready", "2")
            await server.kill()
            await shows(page.locator("#link-text"), "no answer")
            await expect(page.locator(".notice")).to_contain_text("the server does not answer; trying again")
            await row_shows(page, "mail", "Ready", "2")
            await keep(page, "server-gone")
            await server.start()
            async with Client(server.url) as client:
                await client.produce("mail", "c")
            await row_shows(page, "mail", "Ready", "3")
            await shows(page.locator("#link-text"), "live")
            await shows(page.locator(".notice"), "1 queue")
