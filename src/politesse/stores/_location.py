"""Where a store or a journal is, as one argument: a path, or a URL as SQLAlchemy writes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from politesse.errors import ConfigurationError
from politesse.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from politesse.clock import Clock

_WANTED: Final = "give the path of a file, 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'"
_IN_MEMORY: Final = ("sqlite:", "sqlite://", "sqlite:///")  # as SQLAlchemy writes it; and any name ":memory:"


def store_at(location: str | os.PathLike[str], *, clock: Clock) -> SqliteStore:
    """Return the store at a location.

    Args:
        location: the path of a file; or ``sqlite:///`` and a path, which is taken as it is, not percent-decoded.
        clock: dates the records.

    Raises:
        ConfigurationError: the location is neither, names options or no file, or the file cannot be used. The error
            calls it ``store``.
        ImportError: this Python was built without the module sqlite3.
    """
    try:
        _check_is_no_memory(location)
        return SqliteStore(path_at(location), clock=clock)
    except ConfigurationError as error:
        problem = str(error)
        raise type(error)(f"store={os.fspath(location)!r:.200}: {problem}") from error


def path_at(location: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of the file at a location; see ``store_at``.

    Raises:
        ConfigurationError: the location is a URL that is not ``sqlite:///`` and a path, or that has options.
    """
    if not isinstance(location, str):
        return location
    scheme, is_url, rest = location.partition(":")
    path = rest.removeprefix("///")
    if not is_url or (scheme != "sqlite" and not rest.startswith("//")):
        return location
    if scheme != "sqlite" or path == rest:
        raise ConfigurationError(f"no such kind of file; {_WANTED}")
    if "?" in path or "#" in path:
        raise ConfigurationError("options in the URL are not known: leave them out, or make a SqliteStore with them")
    return path


def _check_is_no_memory(location: str | os.PathLike[str]) -> None:
    if isinstance(location, str) and (location.endswith(":memory:") or location in _IN_MEMORY):
        raise ConfigurationError("a store in memory is the default: leave store= out, or give a MemoryStore")
