import logging
from dataclasses import dataclass

import pytest

from politesse import Gatekeeper
from politesse.events import Event, Publisher
from politesse.testing import ScriptedFetcher


@dataclass(frozen=True, slots=True)
class Happened(Event):
    what: str


def test_subscribers_are_called_in_the_order_of_subscription() -> None:
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


STEERING = "\x1b]0;owned\x07\x9b2J\u202e\r\n2026-01-01 CRITICAL forged\u2028"


async def test_logged_exception_of_a_subscriber_steers_no_terminal_and_forges_no_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Rude(Exception):
        def __repr__(self) -> str:
            return STEERING

    def fail(event: Event) -> None:
        raise ValueError(f"{STEERING} in {event!r}") from Rude(STEERING)

    async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher({"https://a.example": Rude()})) as gate:
        gate.subscribe(fail)
        await gate.check("https://a.example/\u202e")
    shown = [logging.Formatter("%(message)s").format(record) for record in caplog.records]
    assert len(shown) == 4  # the fetcher's failure, and the subscriber's on that, the fetch, the decision
    for text in shown:
        first, *others = text.split("\n")
        assert all(line.isprintable() for line in (first, *others))
        assert all(line.startswith("  ") for line in others)
        assert "Rude" in text
    assert shown[0].startswith("The fetcher failed for https://a.example\n")
    for text in shown[1:]:
        assert text.startswith("a subscriber failed on ")
        assert "ValueError" in text
