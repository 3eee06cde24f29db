"""A call that is given up when it takes too long: in a process of its own, because nothing else ends a search."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

T = TypeVar("T")


def within(limit_s: float, function: Callable[..., T], *arguments: object) -> T | None:
    """Return what a function of a module returns, or None if it has not after ``limit_s`` seconds."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()  # the other process has its own: when that one ends, the pipe does
    try:
        if not receiver.poll(limit_s):
            return None
        result: T = receiver.recv()
    except EOFError:
        raise RuntimeError(f"{function.__name__}{arguments} failed; its traceback stands above") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    return result


def _send(sender: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    sender.send(function(*arguments))
    sender.close()
