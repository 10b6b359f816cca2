"""The checker proved: it finds every kind of broken promise that is planted, and nothing in what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from querator.clock import ManualClock
from tests.history.checker import check
from tests.history.events import Event, Sent
from tests.history.recorder import Recorder, read_events, to_file
from tests.history.story import LEASE_MS, Story

MORTAL = {"max_attempts": 2, "dead_queue": "dead"}


def whole_day() -> Story:
    """A history with everything that may happen."""
    story = Story(**MORTAL)
    story.produce("a", "b", "c", "d", "e", "f")
    story.reserve("a", "b")
    story.complete("a", "b")
    story.reserve("c", "d")
    story.complete("c")
    story.retry("d", in_ms=20)
    story.clock.advance(20)
    story.reserve(("d", 2), "e")
    story.renew("e")
    story.retry(("d", 2), dead=True)
    story.expire()
    story.complete("e", outcome="failed")
    story.reserve(("e", 2), "f")
    story.complete("f", outcome="unknown")
    story.produce("g", "h", outcome="unknown")
    story.produce("i", outcome="failed")
    story.produce("j", outcome=None, by="killed")
    story.produce("k", due_in_ms=50)
    story.expire()
    story.count(5)
    story.reserve("d", "e", by="drain", queue="dead")
    story.complete("d", "e", by="drain", queue="dead")
    story.reserve("g", "h", "k", by="drain")
    story.complete("g", "h", "k", by="drain")
    story.count(0, drained=True)
    return story


def test_a_history_of_what_is_allowed_is_clean() -> None:
    """Expiry, retry, death, schedules, renewals, refusals and unknown outcomes are no violations."""
    report = whole_day().check()
    assert report.violations == []
    assert (report.produced, report.completed, report.in_doubt) == (7, 8, 1)
    assert (report.redelivered, report.unknown) == (4, 3)
    assert report.ordered == 8
    assert str(report).endswith("ordered 8, violations 0")


def kinds(story: Story) -> set[str]:
    return story.check().kinds()


class TestLoss:
    def test_an_acknowledged_item_that_never_comes(self) -> None:
        """An item whose produce was answered 200 and that nobody saw again is lost, and the proof names its produce."""
        story = Story()
        story.produce("a")
        (violation,) = story.check().violations
        assert (violation.kind, violation.tag) == ("lost", "a")
        assert "p#1 produce 'mail'" in str(violation)

    def test_an_item_that_was_handed_out_and_never_comes_back(self) -> None:
        """A lease that ran out does not end an item."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        assert kinds(story) == {"lost"}

    def test_a_retried_item_that_never_comes_back(self) -> None:
        """A retry does not end an item, not even as a dead one, while there is a dead queue."""
        story = Story(**MORTAL)
        story.produce("a", "b")
        story.reserve("a", "b")
        story.retry("a")
        story.retry("b", dead=True)
        assert [violation.kind for violation in story.check().violations] == ["lost", "lost"]

    def test_half_of_an_unknown_produce(self) -> None:
        """A produce whose outcome is unknown stored all of its items or none."""
        story = Story()
        story.produce("a", "b", outcome="unknown")
        story.reserve("a")
        story.complete("a")
        assert kinds(story) == {"lost, though others of its produce are there"}

    def test_half_of_an_unknown_complete(self) -> None:
        """A complete whose outcome is unknown ended all of its items or none: one that is still there proves the other lost."""
        story = Story()
        story.produce("a", "b")
        story.reserve("a", "b")
        story.complete("a", "b", outcome="unknown")
        story.expire()
        story.reserve(("a", 2))
        story.complete(("a", 2))
        (violation,) = story.check().violations
        assert (violation.kind, violation.tag) == ("lost", "b")

    def test_an_unknown_complete_may_have_ended_its_items(self) -> None:
        """As long as nothing of it is seen again, an unknown complete explains that its items are gone."""
        story = Story()
        story.produce("a", "b")
        story.reserve("a", "b")
        story.complete("a", "b", outcome="unknown")
        story.complete("a", "b", outcome="failed")
        assert kinds(story) == set()

    def test_a_refused_complete_ends_nothing(self) -> None:
        """A complete that was refused does not explain that an item is gone."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.complete("a", outcome="failed")
        assert kinds(story) == {"lost"}

    @pytest.mark.parametrize("facts", [{"max_attempts": 1}, {"expire_timeout_ms": 5}], ids=["attempts", "time"])
    def test_what_dies_without_a_dead_queue_is_gone(self, facts: dict[str, object]) -> None:
        """Without a dead queue, an item that ran out of attempts or time is not lost."""
        story = Story(**facts)
        story.produce("a")
        story.reserve("a")
        story.expire()
        story.lose_reserve()
        assert kinds(story) == set()


class TestEnds:
    def test_two_acknowledged_completes(self) -> None:
        """An item is completed at most once, whichever hand-outs were named."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.complete("a")
        story.complete("a")
        assert kinds(story) == {"completed twice"}

    def test_a_completed_item_that_comes_back(self) -> None:
        """After an acknowledged complete an item is never handed out again."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.complete("a")
        story.reserve(("a", 2))
        assert kinds(story) == {"completed and yet there"}

    def test_a_completed_item_that_dies(self) -> None:
        """After an acknowledged complete an item does not turn up in the dead queue."""
        story = Story(**MORTAL)
        story.produce("a")
        story.reserve("a")
        story.retry("a")
        story.reserve(("a", 2))
        story.complete(("a", 2))
        story.reserve("a", queue="dead")
        assert kinds(story) == {"completed and yet there"}

    def test_a_lease_that_ends_by_retry_and_complete(self) -> None:
        """One hand-out is given back or completed, not both."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.retry("a")
        story.complete("a")
        assert kinds(story) == {"one lease ended twice"}

    @pytest.mark.parametrize("call", ["complete", "retry", "renew"])
    def test_an_ended_lease_that_is_honoured(self, call: str) -> None:
        """Who held an earlier lease cannot complete, retry or renew the item that another holds now."""
        story = Story()
        story.produce("a")
        story.reserve("a", by="slow")
        story.expire()
        story.reserve(("a", 2), by="quick")
        story.clock.advance(1)
        getattr(story, call)("a", by="slow")
        story.complete(("a", 2), by="quick", outcome="unknown")
        assert "an ended lease was honoured" in kinds(story)


class TestLeases:
    def test_a_second_lease_before_the_deadline(self) -> None:
        """A second hand-out while the first holds is found, with both reserves as the proof."""
        story = Story()
        story.produce("a")
        story.reserve("a", by="one")
        story.reserve(("a", 2), by="other")
        story.complete(("a", 2), by="other")
        (violation,) = story.check().violations
        assert violation.kind == "leased twice at a time"
        assert "one#1 reserve" in str(violation)
        assert "other#1 reserve" in str(violation)

    def test_a_lease_that_is_taken_away_just_before_its_end(self) -> None:
        """The grant is told by the second deadline, so that a slow answer hides nothing."""
        story = Story()
        story.produce("a")
        story.reserve("a", by="one")
        story.clock.advance(LEASE_MS - 50)
        story.reserve(("a", 2), by="other")
        story.complete(("a", 2), by="other")
        assert kinds(story) == {"leased twice at a time"}

    def test_a_renewed_lease_holds(self) -> None:
        """After an acknowledged renew the new deadline is the one that counts."""
        story = Story()
        story.produce("a")
        story.reserve("a", by="one")
        story.clock.advance(LEASE_MS // 2)
        story.renew("a", by="one")
        story.clock.advance(LEASE_MS // 2 + 10)
        story.reserve(("a", 2), by="other")
        story.complete(("a", 2), by="other")
        assert kinds(story) == {"leased twice at a time"}

    @pytest.mark.parametrize("outcome", ["ok", "unknown"])
    def test_a_renew_may_shorten_a_lease(self, outcome: str) -> None:
        """A hand-out after a deadline that was, or may have been, brought forward is no violation."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.renew("a", lease_timeout_ms=20, outcome=outcome)  # type: ignore[arg-type]
        story.clock.advance(30)
        story.reserve(("a", 2))
        story.complete(("a", 2))
        assert kinds(story) == set()

    def test_a_lease_taken_away_by_death(self) -> None:
        """The last allowed attempt may finish: its item is not in the dead queue before."""
        story = Story(max_attempts=1, dead_queue="dead")
        story.produce("a")
        story.reserve("a")
        story.reserve("a", queue="dead")
        story.complete("a", queue="dead")
        assert kinds(story) == {"leased twice at a time"}

    def test_one_attempt_that_is_handed_out_twice(self) -> None:
        """Even after the deadline, two hand-outs with one number are two copies of an item, or a forgotten lease."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.expire()
        story.reserve("a")
        story.complete("a")
        assert kinds(story) == {"handed out twice as one attempt"}

    @pytest.mark.parametrize("outcome", ["ok", "unknown"])
    def test_a_retry_ends_a_lease(self, outcome: str) -> None:
        """A hand-out after a retry, answered or not, is no violation."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.retry("a", outcome=outcome)  # type: ignore[arg-type]
        story.reserve(("a", 2))
        story.complete(("a", 2))
        assert kinds(story) == set()

    def test_a_refused_retry_ends_no_lease(self) -> None:
        """A retry that was refused does not explain a second hand-out."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.retry("a", outcome="failed")
        story.reserve(("a", 2))
        story.complete(("a", 2))
        assert kinds(story) == {"leased twice at a time"}


class TestAttempts:
    def test_a_hand_out_that_nobody_saw(self) -> None:
        """An attempt that is missing is a hand-out to nobody, unless the answer to a reserve was lost."""
        story = Story()
        story.produce("a")
        story.reserve(("a", 2))
        story.complete(("a", 2))
        assert kinds(story) == {"handed out to nobody"}
        story.lose_reserve()
        assert kinds(story) == set()

    def test_more_attempts_than_allowed(self) -> None:
        """An item is handed out max_attempts times at most."""
        story = Story(**MORTAL)
        story.produce("a")
        for attempt in (1, 2, 3):
            story.reserve(("a", attempt))
            story.expire()
        story.complete(("a", 3))
        assert kinds(story) == {"too many attempts"}

    def test_death_without_a_reason(self) -> None:
        """An item in the dead queue ran out of attempts or time, or a consumer said so."""
        story = Story(**MORTAL)
        story.produce("a")
        story.reserve("a")
        story.expire()
        story.reserve("a", queue="dead")
        story.complete("a", queue="dead")
        assert kinds(story) == {"dead without a reason"}
        story.lose_reserve()
        assert kinds(story) == set()


class TestContents:
    def test_an_item_that_nobody_produced(self) -> None:
        """Nothing is handed out that was not produced."""
        story = Story()
        story.reserve("a")
        assert kinds(story) == {"from nowhere"}

    def test_an_item_before_its_produce(self) -> None:
        """Nothing is handed out before somebody asked for its produce."""
        story = Story()
        story.reserve("a")
        story.clock.advance(1)
        story.produce("a")
        story.complete("a")
        assert kinds(story) == {"from nowhere"}

    def test_an_item_whose_produce_was_refused(self) -> None:
        """A produce that was refused stored nothing."""
        story = Story()
        story.produce("a", outcome="failed")
        story.reserve("a")
        story.complete("a")
        assert kinds(story) == {"refused and yet there"}

    def test_an_item_in_another_queue(self) -> None:
        """An item is in its queue or in that queue's dead queue."""
        story = Story()
        story.produce("a")
        story.reserve("a", queue="other")
        story.complete("a", queue="other")
        assert "in the wrong queue" in kinds(story)

    def test_a_scheduled_item_before_its_time(self) -> None:
        """An item is not handed out before its enqueue_at."""
        story = Story()
        story.produce("a", due_in_ms=500)
        story.clock.advance(100)
        story.reserve("a")
        story.complete("a")
        assert kinds(story) == {"too early"}

    def test_a_retried_item_before_its_time(self) -> None:
        """An item is not handed out before the retry_at with which it was given back."""
        story = Story()
        story.produce("a")
        story.reserve("a")
        story.retry("a", in_ms=500)
        story.clock.advance(100)
        story.reserve(("a", 2))
        story.complete(("a", 2))
        assert kinds(story) == {"too early"}

    def test_a_last_attempt_that_is_given_back_for_later_is_dead_at_once(self) -> None:
        """A retry_at does not hold up the way to the dead queue."""
        story = Story(max_attempts=1, dead_queue="dead")
        story.produce("a")
        story.reserve("a")
        story.retry("a", in_ms=500)
        story.reserve("a", queue="dead")
        story.complete("a", queue="dead")
        assert kinds(story) == set()

    def test_a_tag_that_was_used_twice(self) -> None:
        """A history in which a tag means two items proves nothing, and says so."""
        story = Story()
        story.produce("a")
        story.produce("a")
        story.reserve("a")
        story.complete("a")
        assert kinds(story) == {"tag used twice"}

    def test_a_count_that_drifted(self) -> None:
        """What the server counts is what is found afterwards, and nothing after the drain."""
        story = Story()
        story.produce("a", "b")
        story.count(3)
        story.reserve("a", "b")
        story.complete("a", "b")
        story.count(0, drained=True)
        story.count(1, drained=True)
        assert [violation.kind for violation in story.check().violations] == ["counts differ from contents"] * 2


class TestOrder:
    def test_two_produces_out_of_order(self) -> None:
        """With one partition and one consumer, what was answered first comes first."""
        story = Story()
        story.produce("a")
        story.clock.advance(1)
        story.produce("b")
        story.reserve("b")
        story.reserve("a")
        story.complete("a", "b")
        (violation,) = story.check().violations
        assert (violation.kind, violation.tag) == ("out of order", "a")

    def test_one_produce_out_of_order(self) -> None:
        """The items of one produce come in their order, also when another produce was under way beside it."""
        story = Story()
        first = story.client("p").invoked("produce", "mail", sent=[Sent(tag="a"), Sent(tag="b")])
        story.produce("x", by="q")
        story.client("p").returned(first, "ok")
        story.reserve("b", "x", "a")
        story.complete("a", "b", "x")
        assert kinds(story) == {"out of order"}

    def test_produces_that_overlap_have_no_order(self) -> None:
        """Two produces that were under way at a time may come in either order."""
        story = Story()
        first = story.client("p").invoked("produce", "mail", sent=[Sent(tag="a")])
        story.produce("b", by="q")
        story.client("p").returned(first, "ok")
        story.reserve("b", "a")
        story.complete("a", "b")
        report = story.check()
        assert (report.violations, report.ordered) == ([], 2)

    @pytest.mark.parametrize("facts", [{"partitions": 2}, {}], ids=["two partitions", "two consumers"])
    def test_there_is_no_order_to_keep(self, facts: dict[str, object]) -> None:
        """With several partitions, or with consumers that reserve at the same time, there is no order to check."""
        story = Story(**facts)
        story.produce("a")
        story.clock.advance(1)
        story.produce("b")
        waiting = story.client("other").invoked("reserve", "mail")
        story.clock.advance(1)
        story.reserve("b")
        story.reserve("a")
        story.complete("a", "b")
        story.client("other").returned(waiting, "failed")
        assert story.check().violations == []


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    """Events that were written to files are read back as they were, and a line that a kill cut off is left out."""
    told = whole_day().events
    path = tmp_path / "clients.jsonl"
    with path.open("wb") as file:
        sink = to_file(file)
        for event in told:
            sink(event)
        file.write(b'{"event":"invoked","client":"p","num')
    assert list(read_events([path])) == told
    assert check(read_events([path])).violations == []


def test_a_killed_client_leaves_its_call_behind(tmp_path: Path) -> None:
    """A call is in the file before it is sent, and one without an end is unknown."""
    path = tmp_path / "client.jsonl"
    with path.open("wb") as file:
        Recorder("p", ManualClock(), to_file(file)).invoked("produce", "mail", sent=[Sent(tag="a")])
        events: list[Event] = list(read_events([path]))
    assert check(events).unknown == 1
    assert check(events).violations == []


def test_the_time_grows_with_the_events_alone() -> None:
    """A queue of many items with many hand-outs is checked item by item: no rule looks at all pairs."""
    story = Story()
    tags = [f"t{number}" for number in range(5000)]
    story.produce(*tags)
    for attempt in (1, 2, 3):
        story.reserve(*((tag, attempt) for tag in tags))
        story.expire()
    story.reserve(*((tag, 4) for tag in tags))
    story.complete(*((tag, 4) for tag in tags))
    report = story.check()
    assert (report.violations, report.redelivered, report.ordered) == ([], 15_000, 5000)
