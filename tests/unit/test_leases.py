"""Leases and their deadlines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from querator.items import NEVER_MS
from querator.leases import Lease, Leases


def lease(lease_id: int, deadline_ms: int) -> Lease:
    return Lease(lease_id, "consumer", deadline_ms, {1: 1})


def test_without_leaves_what_was_not_freed() -> None:
    """Freed slots go, blocks without slots go, and the lease itself is not changed."""
    spanning = Lease(1, "c", 0, {1: 0b111, 2: 0b1})
    assert spanning.without({1: 0b010, 2: 0b1}) == {1: 0b101}
    assert spanning.without({}) == {1: 0b111, 2: 0b1}
    assert spanning.slots == {1: 0b111, 2: 0b1}


def test_a_lease_is_due_once_although_it_was_renewed_back_and_forth() -> None:
    """A renewal to a deadline that it had before does not make it due twice."""
    leases = Leases()
    renewed = lease(1, 100)
    leases.add(renewed)
    leases.renew(renewed, 50)
    leases.renew(renewed, 100)
    assert leases.next_deadline_ms() == 100
    assert leases.due(100, 10) == [renewed]


def test_due_leases_stay_until_they_are_removed() -> None:
    """Asking does not take away: a turn that fails finds them again."""
    leases = Leases()
    held = [lease(number, 100 + number) for number in range(5)]
    for each in held:
        leases.add(each)
    assert leases.due(102, 10) == held[:3]
    assert leases.due(102, 2) == held[:2]
    assert leases.due(102, 10) == held[:3]
    for each in held:
        leases.remove(each)
    assert (leases.next_deadline_ms(), len(leases)) == (NEVER_MS, 0)


ACTIONS = st.lists(st.tuples(st.sampled_from("arn"), st.integers(0, 9), st.integers(0, 50)), max_size=80)


@settings(deadline=None)
@given(ACTIONS, st.integers(0, 50))
def test_the_earliest_deadline_is_always_right(actions: list[tuple[str, int, int]], now_ms: int) -> None:
    """After any adds, renewals and removals the next deadline and what is due are those of the leases that live."""
    leases = Leases()
    live: dict[int, Lease] = {}
    for action, number, deadline_ms in actions:
        if action == "a" and number not in live:
            live[number] = lease(number, deadline_ms)
            leases.add(live[number])
        elif action == "r" and number in live:
            leases.remove(live.pop(number))
        elif action == "n" and number in live:
            leases.renew(live[number], deadline_ms)
    assert leases.next_deadline_ms() == min((each.deadline_ms for each in live.values()), default=NEVER_MS)
    due = leases.due(now_ms, 100)
    assert sorted(each.id for each in due) == sorted(each.id for each in live.values() if each.deadline_ms <= now_ms)
    assert [each.deadline_ms for each in due] == sorted(each.deadline_ms for each in due)
    assert set(leases) == set(live.values())


def test_renewals_and_removals_do_not_fill_the_memory() -> None:
    """The heap of deadlines stays in proportion to the leases that live, behind an early one that stays."""
    leases = Leases()
    leases.add(lease(0, 1))
    for number in range(1, 20_000):
        passing = lease(number, 1000 + number)
        leases.add(passing)
        leases.remove(passing)
    assert len(leases._deadlines) < 2000
    long = lease(1, 1000)
    leases.add(long)
    for deadline_ms in range(1000, 20_000):
        leases.renew(long, deadline_ms)
    assert len(leases._deadlines) < 2000
