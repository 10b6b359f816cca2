"""The fault injector: each fault does what its name says, and the same seed gives the same faults."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from querator.clock import ManualClock
from querator.waist import Batch, Fenced, OutcomeUnknown, StorageError
from storage.faulty import (
    Call,
    Chances,
    Fault,
    FaultyBackend,
    FaultyPartition,
    Outcome,
    RandomFaults,
    ScriptedFaults,
)
from storage.memory import MemoryBackend


async def faulty_partition(faults: ScriptedFaults, clock: ManualClock | None = None) -> FaultyPartition:
    backend = FaultyBackend(MemoryBackend(), faults, clock)
    await backend.create(1)
    partition = backend.partition(1)
    await partition.open(1)
    return partition


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("outcome", "unknown", "landed"),
    [(Outcome.REFUSED, False, 0), (Outcome.LOST_BEFORE, True, 0), (Outcome.LOST_AFTER, True, 1)],
)
async def test_a_commit_fails_as_the_script_says(outcome: Outcome, unknown: bool, landed: int) -> None:
    """A refused commit is known not to have landed; a lost answer leaves it unknown, until the next open tells."""
    faults = ScriptedFaults()
    partition = await faulty_partition(faults)
    faults.add(Call.COMMIT, Fault(outcome=outcome))
    with pytest.raises(StorageError) as caught:
        await partition.commit(Batch(number=1, summary=b"", puts={b"k": b"v"}))
    assert isinstance(caught.value, OutcomeUnknown) is unknown
    assert (await partition.open(1)).number == landed
    assert len(await partition.get([b"k"])) == landed
    assert faults.exhausted


async def test_opens_and_scans_fail_as_the_script_says() -> None:
    """Each fault strikes one call, of the partition that it names, and the next call is well again."""
    faults = ScriptedFaults()
    partition = await faulty_partition(faults)
    refused = Fault(outcome=Outcome.REFUSED)
    faults.add(Call.OPEN, refused, partition=1)
    faults.add(Call.SCAN, refused, refused)
    with pytest.raises(StorageError):
        await partition.open(1)
    with pytest.raises(StorageError):
        await partition.scan(b"", b"\xff", 1)
    with pytest.raises(StorageError):
        await partition.get([b"k"])
    await partition.open(1)
    assert await partition.scan_blocks(1, 9, 9) == []


async def test_a_slow_commit_lands_when_its_gate_opens() -> None:
    """A commit that waits at a gate has written nothing; opening again waits for it, also if its caller is gone."""
    faults = ScriptedFaults()
    partition = await faulty_partition(faults)
    gate = asyncio.Event()
    faults.add(Call.COMMIT, Fault(gate=gate))
    caller = asyncio.create_task(partition.commit(Batch(number=1, summary=b"", puts={b"k": b"v"})))
    await settle()
    assert await partition.get([b"k"]) == {}
    caller.cancel()
    opening = asyncio.create_task(partition.open(1))
    await settle()
    assert not opening.done()
    gate.set()
    assert (await opening).number == 1


async def test_a_delay_is_of_the_clock() -> None:
    """A delayed call ends when the clock has been turned so far, and not before."""
    faults, clock = ScriptedFaults(), ManualClock()
    partition = await faulty_partition(faults, clock)
    faults.add(Call.COMMIT, Fault(delay_ms=500))
    commit = asyncio.create_task(partition.commit(Batch(number=1, summary=b"")))
    await settle()
    clock.advance(499)
    await settle()
    assert not commit.done()
    clock.advance(1)
    await commit


async def test_a_delayed_commit_of_a_replaced_owner_is_fenced() -> None:
    """A commit that was under way for long is refused if the partition has another owner when it arrives."""
    faults = ScriptedFaults()
    backend = FaultyBackend(MemoryBackend(), faults)
    await backend.create(1)
    old, new = backend.partition(1), backend.partition(1)
    await old.open(1)
    gate = asyncio.Event()
    faults.add(Call.COMMIT, Fault(gate=gate))
    commit = asyncio.create_task(old.commit(Batch(number=1, summary=b"")))
    await settle()
    await new.open(2)
    gate.set()
    with pytest.raises(Fenced):
        await commit


async def test_what_is_broken_refuses_until_it_is_mended() -> None:
    """A broken partition leaves the others well; a broken backend refuses everything, and says so."""
    backend = FaultyBackend(MemoryBackend())
    for uid in (1, 2):
        await backend.create(uid)
    one, two = backend.partition(1), backend.partition(2)
    backend.break_(1)
    with pytest.raises(StorageError):
        await one.open(1)
    await two.open(1)
    assert (await backend.health()).ok
    backend.break_()
    with pytest.raises(StorageError):
        await two.commit(Batch(number=1, summary=b""))
    with pytest.raises(StorageError):
        await backend.list()
    assert not (await backend.health()).ok
    backend.mend()
    await two.commit(Batch(number=1, summary=b""))
    backend.mend(1)
    await one.open(1)


def test_the_same_seed_gives_the_same_faults() -> None:
    """Random faults follow from the seed alone, hit every kind, and another seed gives others."""
    chances = Chances(
        commit_refused=0.1, commit_lost_after=0.1, commit_lost_before=0.1, open_refused=0.2, scan_refused=0.2, slow=0.1
    )

    def draw(seed: int) -> list[Fault]:
        faults = RandomFaults(Random(seed), chances)
        return [faults.next(call, 1) for _ in range(200) for call in (Call.COMMIT, Call.OPEN, Call.SCAN)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert {fault.outcome for fault in draw(1)} == set(Outcome)
    assert any(fault.delay_ms for fault in draw(1))


def test_no_chance_is_no_fault() -> None:
    """Chances of zero never strike, and calls of the backend itself are never struck at random."""
    faults = RandomFaults(Random(1), Chances())
    assert all(faults.next(call, 1) == Fault() for call in Call for _ in range(100))
    certain = RandomFaults(Random(1), Chances(commit_refused=1.0, slow=1.0))
    assert certain.next(Call.LIST, None) == Fault()
