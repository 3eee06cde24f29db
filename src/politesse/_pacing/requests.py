"""What a pacer is asked and what it answers: the protocol Pacer, and the types of its arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse.robots import RuleSet


class TurnRequest(NamedTuple):
    """A request that wants to start. Each turn makes a TurnRequest; a named tuple is cheap to make.

    Attributes:
        host: the host name under which the request is paced, in lower case, without scheme, port and trailing dot.
        origin: the origin of the URL, as text.
        agent: the product tokens whose rules apply, the most specific first, joined by commas.
        pace: the statements of the robots.txt of ``origin`` for ``agent``. If it is None, the earlier statements stay
            in force.
        url: the URL, which is shown to requests that wait for this request; empty if it is unknown.
        min_delay_s: the shortest interval before this request that the gate permits. Gates with different values may
            share a pacer.
        check_lines: a function that raises an error if the request must not wait. A pacer of several scopes calls the
            function before the request waits, once the pacer knows the keys of all scopes. Other pacers never call it.
    """

    host: str
    origin: str
    agent: str
    pace: RuleSet | None = None
    url: str = ""
    min_delay_s: float = 0.0
    check_lines: Callable[[], None] | None = None


class PacedLine(NamedTuple):
    """A line in which requests wait for a turn: the line of one host, or of all hosts at one address or in one domain.

    Attributes:
        pacer: the pacer that has the line; gates that share a pacer name the same object.
        key: the key of the line in the pacer.
        max_concurrent: how many requests may be under way at once.
    """

    pacer: object
    key: str
    max_concurrent: int


class Permit(Protocol):
    """Permission to make one request now.

    A permit ends once: by ``end`` or ``give_back``, or because it was held for ``PacingOptions.max_turn_s``. Later
    calls have no effect.
    """

    @property
    def waited(self) -> bool:
        """Whether the request had to wait for the permit."""

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way. Has no effect after the end.

        Args:
            status: the HTTP status.
            headers: the headers, names in lower case.
        """

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""

    def give_back(self) -> None:
        """End the permit without a request: the host was not contacted, so the interval does not begin again."""
