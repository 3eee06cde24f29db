"""The orders of watchers. Each order is carried out at once.

An order is noted with its reason: in the log, in the ledger if the gate has one, and in the report of the crawl.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from politesse._base.checks import check_choice, wrong_type
from politesse._base.text import counted, printable
from politesse._cache.options import HostPolicy
from politesse.errors import ConfigurationError
from politesse.origin import Origin, paced_host
from politesse.watch._table import policy_text

if TYPE_CHECKING:
    from politesse._gate.gatekeeper import Gatekeeper
    from politesse.queue import PoliteQueue

_LOGGER: Final = logging.getLogger("politesse.watch")
_LIMITS: Final = ("min_delay_s", "max_concurrent")
_MEMBERS: Final = ("action", "host", "reason", *_LIMITS)
_OF_HOST: Final = ("pace", "deny", "exempt", "clear", "forget", "give_up")
_OF_CRAWL: Final = ("pause", "continue", "stop")
_OF_QUEUE: Final = ("give_up", *_OF_CRAWL)
_MAX_REASON: Final = 200


async def steer(gate: Gatekeeper, queue: PoliteQueue[Any] | None, order: object, by: str) -> str:
    """Carry out an order of ``/steer``, and return what was done.

    Args:
        gate: has the hosts.
        queue: has the crawl; or None.
        order: the order as it was read from JSON.
        by: the address of the watcher.

    Raises:
        ConfigurationError, InvalidURL: the order is invalid.
    """
    action, host, reason, limits = _checked(order)
    if action in _OF_QUEUE:
        if queue is None:
            raise ConfigurationError(f"action={action!r}: this watch has no crawl; give watch.app or serve its queue")
        if queue.is_stopping and action in {"pause", "continue"}:
            raise ConfigurationError(f"action={action!r}: the crawl is stopping")
        done = _steer_queue(queue, action, host, reason)
    elif action == "forget":
        done = await _forget(gate, host)
    else:
        done = _set_policy(gate, action, host, reason, limits)
    note = f"{done}, by a watcher at {by}: {reason}"
    if gate.state.ledger is not None:
        gate.state.ledger.note(note, gate.clock.wall())
    if queue is not None:
        queue.note(note)  # logs it as well
    else:
        _LOGGER.warning("%s", note)
    return done


def _checked(order: object) -> tuple[str, str, str, dict[str, Any]]:
    """Return the action, the host, the reason and the limits of an order; raises ConfigurationError."""
    if not isinstance(order, dict):
        raise wrong_type("order", order, "an object, as {'action': 'deny', 'host': 'example.com', 'reason': '...'}")
    for name in order:
        check_choice("member", name, _MEMBERS, f"one of {', '.join(_MEMBERS)}")
    action, host, reason = (order.get(name) for name in _MEMBERS[:3])
    check_choice("action", action, (*_OF_HOST, *_OF_CRAWL), f"one of {', '.join((*_OF_HOST, *_OF_CRAWL))}")
    if not isinstance(reason, str) or not 1 <= len(reason.strip()) <= _MAX_REASON:
        raise ConfigurationError(f"reason={reason!r:.100}: give a reason of 1 to {_MAX_REASON} characters")
    if isinstance(host, str) != (action in _OF_HOST):
        raise ConfigurationError(f"host={host!r:.100}: give a host with {', '.join(_OF_HOST)}, and only with these")
    limits = {name: order[name] for name in _LIMITS if order.get(name) is not None}
    if any(isinstance(limit, list | dict) for limit in limits.values()):  # perhaps nested too deeply for an error
        raise ConfigurationError("give min_delay_s and max_concurrent as numbers")
    if bool(limits) != (action == "pace"):
        raise ConfigurationError("give min_delay_s, max_concurrent or both with pace, and only with pace")
    return str(action), str(host or ""), printable(reason.strip()), limits


def _steer_queue(queue: PoliteQueue[Any], action: str, host: str, reason: str) -> str:
    if action == "give_up":
        count = queue.give_up(paced_host(host), reason)
        return f"{paced_host(host)}: given up, {counted(count, 'URL')}"
    carry_out, done = {
        "pause": (queue.pause, "The crawl is paused"),
        "continue": (queue.resume, "The crawl continues"),
        "stop": (queue.stop, "The crawl is stopping"),
    }[action]
    carry_out()
    if action == "stop" and not queue.is_stopping:
        raise ConfigurationError("action='stop': no crawl is running")
    return done


def _set_policy(gate: Gatekeeper, action: str, host: str, reason: str, limits: dict[str, Any]) -> str:
    policy = gate.state.policies.get(paced_host(host), HostPolicy())
    if action in {"deny", "exempt"}:
        limits = {"deny": action == "deny", "exempt": action == "exempt", "reason": reason}
    policy = replace(policy, **limits)
    gate.set_policy(host, None if action == "clear" else policy)
    return f"{paced_host(host)}: {'no policy' if action == 'clear' else policy_text(policy, has_reason=False)}"


async def _forget(gate: Gatekeeper, given: str) -> str:
    """Forget the files of an origin, or of all known origins of a host."""
    if "://" in given:
        origins = [Origin.of(given)]
    else:
        host, copies = paced_host(given), gate.state.cache.entries.values()
        origins = [copy.origin for copy in copies if copy.origin.pacing_host == host] or [Origin.of(f"https://{host}")]
    for origin in origins:
        await gate.forget(origin)
    return f"{', '.join(origin.text for origin in origins)}: robots.txt is forgotten"
