"""Looking into partitions, importing, deleting, clearing and reloading, in memory and beyond it."""

from __future__ import annotations

import asyncio

import pytest

from querator import cold_path
from querator.errors import InvalidRequest, QueratorError
from querator.items import Item
from querator.limits import Limits
from storage.faulty import Call
from tests.core.rig import REFUSED, TINY, Rig, items_of

LIMITS = pytest.mark.parametrize("limits", [Limits(), TINY], ids=["roomy", "tiny"])


async def fill_pairs(rig: Rig, count: int) -> list[str]:
    for number in range(count):
        await rig.produce(f"{number:02}a", f"{number:02}b")
    return [f"{number:02}{part}" for number in range(count) for part in "ab"]


@LIMITS
async def test_items_are_listed_in_order_and_by_pages(rig: Rig, limits: Limits) -> None:
    """A pivot is inclusive: pages that begin with the last id of the one before show everything once."""
    await rig.open(limits=limits)
    payloads = await fill_pairs(rig, 20)
    ids: list[str] = []
    pivot = ""
    while page := (await rig.listed(pivot=pivot, limit=7))[1 if pivot else 0 :]:
        ids.extend(view.id for view in page)
        pivot = ids[-1]
    assert ids == sorted(set(ids))
    assert await rig.payloads() == payloads
    assert len(ids) == len(payloads)


@LIMITS
async def test_a_listing_shows_what_is_leased_and_until_when(rig: Rig, limits: Limits) -> None:
    """Leased items are listed with their deadline, also those whose payload left the memory; done ones are not."""
    await rig.open(limits=limits)
    await fill_pairs(rig, 6)
    given = await rig.reserve(4)
    await rig.complete(given.ids[:1])
    views = await rig.listed()
    assert [view.is_leased for view in views] == [True] * 3 + [False] * 8
    assert {view.lease_deadline_ms for view in views} == {given.deadline_ms, 0}
    assert [view.id for view in views[:3]] == given.ids[1:]
    await rig.crash_and_reopen()
    assert await rig.listed() == views


@LIMITS
async def test_deleting_items_anywhere_removes_exactly_them(rig: Rig, limits: Limits) -> None:
    """Items in the window and beyond it can be deleted together, and stay deleted."""
    await rig.open(limits=limits)
    payloads = await fill_pairs(rig, 10)
    views = await rig.listed()
    doomed = [0, 5, 6, 7, 13, 18, 19]
    await rig.delete([views[index].id for index in doomed])
    left = [payload for index, payload in enumerate(payloads) if index not in doomed]
    assert await rig.payloads() == left
    await rig.check_counters()
    await rig.crash_and_reopen()
    await rig.check_counters()
    assert await rig.drain() == left


@LIMITS
async def test_deleting_is_all_or_nothing(rig: Rig, limits: Limits) -> None:
    """An id that is leased, gone or never was refuses the call, and nothing is deleted."""
    await rig.open(limits=limits)
    await fill_pairs(rig, 6)
    given = await rig.reserve(2)
    views = await rig.listed()
    with pytest.raises(InvalidRequest, match="leased"):
        await rig.delete([views[-1].id, given.ids[0]])
    await rig.complete(given.ids)
    with pytest.raises(InvalidRequest, match="exist"):
        await rig.delete([views[-1].id, given.ids[0]])
    with pytest.raises(InvalidRequest):
        await rig.delete([views[-1].id, "nonsense"])
    with pytest.raises(InvalidRequest, match="exist"):
        await rig.delete([views[-1].id[:16] + "fff" + "0001"])
    assert len(await rig.listed()) == 10
    await rig.check_counters()


async def test_imported_items_keep_their_history(rig: Rig) -> None:
    """Attempts, creation and expiry are taken over as they are."""
    await rig.open()
    now_ms = rig.clock.now_ms()
    item = Item(payload=b"a", kind="k", reference="r", attempts=3, created_at=now_ms - 5000, expire_at=now_ms + 5000)
    (imported,) = await rig.import_items([item])
    (listed,) = await rig.listed()
    assert listed == imported
    assert (listed.item.attempts, listed.created_at_ms, listed.expire_at_ms) == (3, now_ms - 5000, now_ms + 5000)
    given = await rig.reserve()
    assert given.ids == [listed.id]


async def test_an_imported_item_without_expiry_is_shown_as_it_is_listed(rig: Rig) -> None:
    """What an import answers is what a listing says afterwards, also where the queue gives the expiry."""
    await rig.open(expire_timeout_ms=60_000)
    imported = await rig.import_items(items_of("a"))
    assert await rig.listed() == imported


async def test_importing_nothing_changes_nothing(rig: Rig) -> None:
    """An empty import is answered, and the queue goes on."""
    await rig.open()
    assert await rig.import_items([]) == []
    await rig.produce("a")
    assert await rig.drain() == ["a"]


@LIMITS
async def test_clearing_items_leaves_leased_and_scheduled_ones(rig: Rig, limits: Limits) -> None:
    """What is under lease or waits for its time is not touched, unless it is asked for."""
    await rig.open(limits=limits)
    await fill_pairs(rig, 10)
    given = await rig.reserve(3)
    await rig.schedule("later", in_ms=1000)
    await rig.clear(items=True)
    assert (rig.stats().ready, rig.stats().leased, rig.stats().scheduled) == (0, len(given.ids), 1)
    await rig.check_counters()
    await rig.complete(given.ids)
    assert rig.stats().total == 0


@LIMITS
async def test_a_destructive_clear_takes_leased_items_too(rig: Rig, limits: Limits) -> None:
    """Afterwards nothing is left, and the consumer's ids complete nothing."""
    await rig.open(limits=limits)
    await fill_pairs(rig, 10)
    given = await rig.reserve(3)
    await rig.clear(items=True, destructive=True)
    assert (rig.stats().ready, rig.stats().leased) == (0, 0)
    with pytest.raises(QueratorError):
        await rig.complete(given.ids)
    await rig.crash_and_reopen()
    assert await rig.payloads() == []
    await rig.produce("a")
    assert await rig.drain() == ["a"]


async def test_clearing_scheduled_items_leaves_the_others(rig: Rig) -> None:
    """Only what is not yet due is removed."""
    await rig.open()
    await rig.produce("a")
    for number in range(5):
        await rig.schedule(str(number), in_ms=1000 + number)
    await rig.clear(scheduled=True)
    assert (rig.stats().scheduled, rig.stats().ready) == (0, 1)
    await rig.pass_ms(5000)
    assert await rig.drain() == ["a"]


@LIMITS
async def test_a_reload_reads_everything_anew(rig: Rig, limits: Limits) -> None:
    """Items, leases, schedules and counters are the same after the memory was forgotten."""
    await rig.open(limits=limits)
    payloads = await fill_pairs(rig, 8)
    given = await rig.reserve(3)
    await rig.schedule("later", in_ms=1000)
    before = (rig.stats(), await rig.listed())
    await rig.answer(cold_path.reload(rig.logical_queue))
    await rig.quiet()
    assert (rig.stats(), await rig.listed()) == before
    await rig.complete(given.ids)
    await rig.pass_ms(1000)
    assert await rig.drain() == [*payloads[len(given.ids) :], "later"]


async def test_a_reload_waits_for_what_is_being_committed(rig: Rig) -> None:
    """A commit under way is applied before the memory is forgotten, and answered."""
    await rig.open()
    gate = rig.gate()
    produced = rig.send("a")
    await rig.until(lambda: rig.member().turn is not None)
    reloading = asyncio.ensure_future(cold_path.reload(rig.logical_queue))
    await asyncio.sleep(0)
    assert not reloading.done()
    gate.set()
    await rig.answer(produced)
    await rig.answer(reloading)
    assert await rig.drain() == ["a"]


async def test_scheduled_items_are_listed_by_their_due_time(rig: Rig) -> None:
    """Whatever the order in which they came; a pivot that is no id is refused."""
    await rig.open()
    for in_ms in (3000, 1000, 2000):
        await rig.schedule(str(in_ms), in_ms=in_ms)
    views = await rig.list_scheduled()
    assert [view.item.payload for view in views] == [b"1000", b"2000", b"3000"]
    page = await rig.answer(cold_path.list_scheduled(rig.logical_queue, 0, views[1].id, 1))
    assert page == views[1:2]
    with pytest.raises(InvalidRequest):
        await rig.answer(cold_path.list_scheduled(rig.logical_queue, 0, "zz", 1))


async def test_an_unknown_partition_is_refused(rig: Rig) -> None:
    """No call reaches a partition that the queue does not have."""
    await rig.open(2)
    with pytest.raises(InvalidRequest, match="no partition 2"):
        await rig.listed(2)
    with pytest.raises(InvalidRequest, match="no partition 2"):
        await rig.complete(["x"], 2)


@pytest.mark.parametrize("call", ["listed", "list_scheduled", "clear"])
async def test_a_failing_read_is_an_error_of_ours(rig: Rig, call: str) -> None:
    """A listing that cannot be read is answered as a failing partition, not as a fault of the program."""
    await rig.open()
    rig.faults.add(Call.SCAN, REFUSED)
    with pytest.raises(QueratorError):
        await (rig.clear(scheduled=True) if call == "clear" else getattr(rig, call)())


async def test_a_clear_of_a_lost_partition_ends(rig: Rig) -> None:
    """Whoever clears a partition that another owner takes over is told."""
    await rig.open(limits=TINY)
    await fill_pairs(rig, 8)
    reading = rig.gate(Call.SCAN)
    clearing = asyncio.ensure_future(cold_path.clear(rig.logical_queue, items=True, scheduled=False, destructive=False))
    await rig.until(lambda: "ahead" in rig.member().reading, "the read-ahead")
    old = rig.logical_queue
    await rig.take_over()
    with pytest.raises(QueratorError):
        await rig.answer(cold_path.import_items(old, 0, items_of("x")))
    reading.set()
    with pytest.raises(QueratorError):
        await rig.answer(clearing)
