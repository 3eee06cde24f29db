"""How pacers publish the headers that they do not obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.events import HeaderOverruled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._pacing.backoff import Overruled
    from politesse.events import Publisher


def publish_overruled(publisher: Publisher, host: str, overruled: Iterable[Overruled]) -> None:
    """Publish the headers of an answer of ``host`` that are not obeyed as they stand."""
    for header in overruled:
        publisher.publish(HeaderOverruled(host, header.field, header.value, header.applied_s))
