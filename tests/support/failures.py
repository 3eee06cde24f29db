"""Reports of a gate about components that failed."""

from politesse import Gatekeeper
from politesse.events import ComponentFailed, Event


def failures_of(gate: Gatekeeper) -> list[ComponentFailed]:
    """Return a list to which each failure is added from now on."""
    failures: list[ComponentFailed] = []

    def note(event: Event) -> None:
        if isinstance(event, ComponentFailed):
            failures.append(event)

    gate.subscribe(note)
    return failures
