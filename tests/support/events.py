"""The events of a gate that a test looks at."""

from typing import TypeVar

from politesse import Gatekeeper
from politesse.events import ComponentFailed, Event

E = TypeVar("E")


def events_of(gate: Gatekeeper, kind: type[E]) -> list[E]:
    """Return a list to which each event of this kind is added from now on."""
    events: list[E] = []

    def note(event: Event) -> None:
        if isinstance(event, kind):
            events.append(event)

    gate.subscribe(note)
    return events


def failures_of(gate: Gatekeeper) -> list[ComponentFailed]:
    """Return a list to which each failure is added from now on."""
    return events_of(gate, ComponentFailed)
