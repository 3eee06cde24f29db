from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.events import Event, Publisher

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class Happened(Event):
    what: str


def test_subscribers_are_called_in_the_order_in_which_they_came() -> None:
    publisher = Publisher()
    seen: list[str] = []
    publisher.subscribe(lambda _: seen.append("first"))
    publisher.subscribe(lambda _: seen.append("second"))
    publisher.publish(Happened("x"))
    assert seen == ["first", "second"]


def test_unsubscribing_ends_it_and_may_be_done_twice() -> None:
    publisher = Publisher()
    seen: list[Event] = []
    end = publisher.subscribe(seen.append)
    end()
    end()
    publisher.publish(Happened("x"))
    assert seen == []


def test_unsubscribing_during_an_event_harms_nobody() -> None:
    publisher = Publisher()
    seen: list[str] = []

    def once(_: Event) -> None:
        seen.append("once")
        end()

    end = publisher.subscribe(once)
    publisher.subscribe(lambda _: seen.append("always"))
    publisher.publish(Happened("x"))
    publisher.publish(Happened("y"))
    assert seen == ["once", "always", "always"]


def test_subscriber_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher()
    seen: list[Event] = []

    def broken(_: Event) -> None:
        raise ValueError("no such table")

    publisher.subscribe(broken)
    publisher.subscribe(seen.append)
    publisher.publish(Happened("x"))
    assert seen == [Happened("x")]
    assert "no such table" in caplog.text
    assert "Happened" in caplog.text
