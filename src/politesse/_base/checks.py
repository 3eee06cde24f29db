"""Checks of options and arguments, and the errors that they raise; ``politesse.errors`` exports the errors.

An error names the argument, its value, and the values that are valid.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn

# Up to the last "@", because an invalid URL may be so for the sake of a password with "/", "?" or "#".
_CREDENTIALS: Final = re.compile(r"^([^/?#]*//|(?=[^/?#@]*:)).*@", re.DOTALL)
_FRAGMENT: Final = re.compile(r"(?<=.)#.*", re.DOTALL)


class PolitesseError(Exception):
    """The base of all exceptions that politesse raises on purpose.

    >>> from politesse import ConfigurationError
    >>> issubclass(ConfigurationError, PolitesseError)
    True
    """

    __module__ = "politesse.errors"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Return an error without calling ``__init__``, because a subclass may take other arguments than ``args``."""
    # If OSError is one of several base classes, only ``OSError.__new__`` can create the error.
    error = OSError.__new__(kind) if issubclass(kind, OSError) else kind.__new__(kind)
    error.args = args
    return error


class ConfigurationError(PolitesseError, ValueError):
    """An option has an invalid value; the message names the option and the value.

    >>> from politesse import FetchOptions
    >>> FetchOptions(total_timeout_s=0)
    Traceback (most recent call last):
    politesse.errors.ConfigurationError: total_timeout_s=0: give a positive number of seconds
    """

    __module__ = "politesse.errors"


class ConfigurationTypeError(ConfigurationError, TypeError):
    """An option has a value of the wrong type; the message names the option and the value.

    >>> from politesse import FetchOptions
    >>> FetchOptions(total_timeout_s=None)
    Traceback (most recent call last):
    politesse.errors.ConfigurationTypeError: total_timeout_s=None: give a positive number of seconds
    """

    __module__ = "politesse.errors"


class InvalidURL(PolitesseError, ValueError):
    """The text is not an absolute http or https URL that a client could request.

    >>> from politesse import Origin
    >>> Origin.of("/page")
    Traceback (most recent call last):
    politesse.errors.InvalidURL: '/page' is not an absolute URL: write 'https://example.com/page'

    Attributes:
        url: the text as it was given, but with ``***`` in place of userinfo, and without a fragment.
        problem: a phrase that describes the problem.
    """

    __module__ = "politesse.errors"

    def __init__(self, url: str, problem: str) -> None:
        self.url: str = _FRAGMENT.sub("", _CREDENTIALS.sub(r"\1***@", url))
        super().__init__(f"{self.url!r:.200} {problem}")
        self.problem = problem


def wrong_type(name: str, value: object, wanted: str) -> ConfigurationTypeError:
    """Return the error for an option of the wrong type."""
    return ConfigurationTypeError(f"{name}={value!r:.100}: give {wanted}")


class AsyncOnly:
    """An object for ``async with``, which says so if it is used in a plain ``with``."""

    __slots__ = ()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __enter__(self) -> NoReturn:
            raise TypeError(f"a {type(self).__name__} needs 'async with', not 'with'")

        def __exit__(self, *_: object) -> None:
            """Python looks this method up before it calls ``__enter__``."""


def check_types(options: Mapping[str, tuple[object, type]], *, required: bool = False) -> None:
    """Check the types of options; ``options`` maps names to (value, type). None is valid unless ``required``.

    Raises:
        ConfigurationTypeError: for the first option of the wrong type.
    """
    for name, (value, wanted) in options.items():
        if (value is not None or required) and not isinstance(value, wanted):
            raise wrong_type(name, value, f"a {wanted.__name__}")


def check_number(
    name: str, value: float, wanted: str, *, least: float = -inf, most: float = inf, whole: bool = False
) -> None:
    """Raise ConfigurationError unless ``value`` is a number from ``least`` to ``most``, and a whole one if ``whole``.

    Raises:
        ConfigurationTypeError: if ``value`` is no number, or a bool.
    """
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise wrong_type(name, value, wanted)
    if not least <= value <= most:  # NaN is outside every range
        raise ConfigurationError(f"{name}={value!r}: give {wanted}")


def check_ranges(options: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Check that each attribute is a number within its range; a whole number if the range begins with an int.

    Raises:
        ConfigurationError: for the first number out of its range.
        ConfigurationTypeError: for the first value of the wrong type.
    """
    for name, (least, most) in ranges.items():
        check_range(name, getattr(options, name), least, most)


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Check one number against its range; see ``check_ranges``."""
    check_number(name, value, f"{least:g} to {most:g}", least=least, most=most, whole=isinstance(least, int))


def check_positive(name: str, value: float) -> None:
    """Raise ConfigurationError unless ``value`` is a positive, finite number of seconds."""
    wanted = "a positive number of seconds"
    check_number(name, value, wanted)
    if not 0 < value < inf:
        raise ConfigurationError(f"{name}={value!r}: give {wanted}")


def check_least(name: str, value: int, least: int) -> None:
    """Raise ConfigurationError unless ``value`` is a whole number, ``least`` or more."""
    check_number(name, value, f"at least {least}", least=least, whole=True)


def check_wait(name: str, wait_s: float | None) -> None:
    """Raise ConfigurationError unless ``wait_s`` is None or a number of seconds, 0 or more."""
    if wait_s is not None:
        check_number(name, wait_s, "seconds, 0 or more, or None for no limit", least=0)


def check_prefix(prefix: object) -> None:
    """Raise ConfigurationError unless ``prefix`` can begin the keys of a Redis Cluster."""
    if not isinstance(prefix, str):
        raise wrong_type("prefix", prefix, "a text, as 'politesse:'")
    if not prefix or not prefix.isprintable() or "{" in prefix:
        raise ConfigurationError(f"prefix={prefix!r:.100}: give printable text without '{{', as 'politesse:'")


def check_choice(name: str, value: object, choices: Collection[str | None], wanted: str) -> None:
    """Raise ConfigurationError unless ``value`` is one of ``choices``; a ConfigurationTypeError if it is not a str."""
    if not isinstance(value, str | None):
        raise wrong_type(name, value, wanted)
    if value not in choices:
        kind = ConfigurationTypeError if value is None else ConfigurationError
        raise kind(f"{name}={value!r:.100}: give {wanted}")


def check_priority(priority: object) -> None:
    """Raise TypeError or ValueError unless ``priority`` is a number that can be ordered."""
    if not isinstance(priority, int | float):
        raise TypeError(f"priority={priority!r:.100}: give an int or a float")
    if priority != priority:  # noqa: PLR0124 - NaN
        raise ValueError("priority=nan: give a number that can be compared")


def checked_names(name: str, given: object) -> list[str]:
    """Return a name, or an iterable of names, as a list.

    Raises:
        ConfigurationTypeError: if ``given`` is neither a str nor an iterable of str.
    """
    if isinstance(given, str):
        return [given]
    names: list[object] = list(given) if isinstance(given, Iterable) else [None]
    texts = [one for one in names if isinstance(one, str)]
    if len(texts) < len(names):
        raise wrong_type(name, given, "a str, or a list of str")
    return texts
