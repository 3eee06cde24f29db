"""The exceptions that ``politesse.usage`` raises, too: below it, so that ``politesse.errors`` may name verdicts."""

from __future__ import annotations


class PolitesseError(Exception):
    """The base of all exceptions that politesse raises on purpose.

    >>> from politesse import ConfigurationError
    >>> issubclass(ConfigurationError, PolitesseError)
    True
    """

    __module__ = "politesse.errors"


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
