"""The events that pacers publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._pacing.backoff import Overruled
    from politesse.events import Publisher


@dataclass(frozen=True, slots=True)
class HeaderOverruled(Event):
    """A Retry-After or RateLimit header is not obeyed as it stands: it is unreadable or out of range.

    >>> HeaderOverruled("example.com", "retry-after", "soon", 60.0).applied_s
    60.0

    Attributes:
        host: the pacing host that sent it.
        field: its name, in lower case.
        value: at most 100 characters of it, printable.
        applied_s: how long the host is left alone instead, in seconds; None where it changes nothing.
    """

    host: str
    field: str
    value: str
    applied_s: float | None


@dataclass(frozen=True, slots=True)
class AddressNotFound(Event):
    """No address was found for a host that is paced by its address; it is paced by its name for a minute.

    >>> AddressNotFound("example.com", "OSError: no such host").host
    'example.com'

    Attributes:
        host: its name.
        error: what the resolver reports.
    """

    host: str
    error: str


def publish_overruled(publisher: Publisher, host: str, overruled: Iterable[Overruled]) -> None:
    """Publish the headers of an answer of ``host`` that are not obeyed as they stand."""
    for header in overruled:
        publisher.publish(HeaderOverruled(host, header.field, header.value, header.applied_s))
