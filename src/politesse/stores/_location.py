"""Where a store is, as one argument: a path, or a URL as SQLAlchemy writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.errors import ConfigurationError
from politesse.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    import os

    from politesse.clock import Clock

_WANTED: Final = (
    "give the path of a file, 'sqlite:///relative.db' or 'sqlite:////absolute/path.db', or an object as in "
    "politesse.stores"
)


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
        return SqliteStore(_path(location) if isinstance(location, str) else location, clock=clock)
    except ConfigurationError as error:
        problem = str(error)
        raise type(error)(f"store={location!r:.200}: {problem}") from error


def _path(location: str) -> str:
    scheme, is_url, rest = location.partition(":")
    path = rest.removeprefix("///")
    if location.endswith(":memory:") or (scheme == "sqlite" and rest in {"", "//", "///"}):
        raise ConfigurationError("a store in memory is the default: leave store= out, or give a MemoryStore")
    if not is_url or (scheme != "sqlite" and not rest.startswith("//")):
        return location
    if scheme != "sqlite" or path == rest:
        raise ConfigurationError(f"no such kind of store; {_WANTED}")
    if "?" in path or "#" in path:
        raise ConfigurationError("options in the URL are not known: make a SqliteStore with them, and give that")
    return path
