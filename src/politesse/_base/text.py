"""Makes remote text safe for a terminal or a log, and makes the texts that errors share."""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

BLANKS: Final = " \t"
"""SP and HTAB: the only blanks of RFC 9309 2.2 and RFC 9110 5.6.3."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""A control character of ASCII."""

_USERINFO: Final = re.compile(r"^([^/?#]*//)[^/?#]*@")
_URL_IN_TEXT: Final = re.compile(r"//(?:[^\s/?#]*@)?([^\s#'\"]*)(?:#[^\s'\"]*)?")
_MAX_DESCRIBED: Final = 200  # the text of an exception is cut to this many characters
_MAX_LINE: Final = 500  # a line of a traceback is shortened to this many characters
_MAX_LINES: Final = 100


def needs_extra(feature: str, extra: str) -> str:
    """Return the message that a feature needs an extra, with the command that installs the extra."""
    return f"{feature} needs the extra {extra!r}; in a checkout of politesse, run: pip install '.[{extra}]'"


@contextmanager
def needing(feature: str, extra: str, kind: type[Exception] = ImportError) -> Generator[None, None, None]:
    """Import the packages of an extra in the block; if one is missing, raise ``kind`` with ``needs_extra``.

    An ImportError keeps the name of the missing module, by which importers tell it from another one.
    """
    try:
        yield
    except ImportError as error:
        raised = kind(f"{needs_extra(feature, extra)} ({error})")
        if isinstance(raised, ImportError):
            raised.name, raised.path = error.name, error.path
        raise raised from error


def has_utf_8(text: str) -> bool:
    """Return whether UTF-8 can encode a text; it cannot encode a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Return remote text; escape each character that could control a terminal or forge a log line.

    RFC 9309 3: the content of a robots.txt is untrusted.
    """
    if text.isprintable():
        return text
    # The codec unicode_escape is not used, because it cannot be found while the interpreter exits.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, max_length: int = 200) -> str:
    """Return ``printable`` text of at most ``max_length`` characters; ``...`` stands for the rest.

    Messages use the default length for remote text.
    """
    return printable(text) if len(text) <= max_length else printable(text[:max_length]) + "..."


def masked_url(url: str) -> str:
    """Return a URL without its secrets: user, password and query.

    >>> masked_url("redis://crawler:secret@cache.example:6379/0?ssl_password=secret")
    'redis://***@cache.example:6379/0?...'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "..."
    _, at, place = rest.rpartition("@")  # the last "@", because a password may contain others
    place, question, _ = place.partition("?")
    return f"{scheme}://{'***@' if at else ''}{place}{'?...' if question else ''}"


def public_url(url: str) -> str:
    """Return a URL without userinfo and fragment, which may be secrets: for each log, file, event and error.

    >>> public_url("https://crawler:secret@example.com/@news?to=a@b#token")
    'https://example.com/@news?to=a@b'
    """
    return url if "@" not in url and "#" not in url else _USERINFO.sub(r"\1", url.partition("#")[0])


def public_text(text: str) -> str:
    """Return the text of an error with each URL as ``public_url`` has it: clients quote the URLs that they request."""
    return _URL_IN_TEXT.sub(r"//\1", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, for example ``1 host`` and ``2,000 hosts``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def type_name(value: object) -> str:
    """Return the name of the type of ``value`` for an error, such as ``httpx.URL``, or ``int`` for a built-in type."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__[:50] if package == "builtins" else f"{package}.{kind.__qualname__}"[:50]


def described(error: BaseException) -> str:
    """Return the type and the message of an exception, escaped, without secrets, with at most 200 characters.

    This function never raises, even if ``str(error)`` does.
    """
    return printable(public_text(without_tls(traceback.format_exception_only(error)[0].strip()))[:_MAX_DESCRIBED])


def without_tls(message: str) -> str:
    """Return the message of an aiohttp error without ``ssl:default``, which aiohttp adds even for http URLs."""
    return message.replace(" ssl:default [", " [", 1)


def printable_traceback(error: BaseException) -> str:
    """Return the traceback of ``error`` for a log. Unlike ``exc_info``, it escapes unprintable characters.

    Messages of exceptions may quote remote text. Each line is indented, so that no line looks like a log record. Long
    lines are shortened. If there are many lines, only the last lines are kept, because they name the exception.
    """
    lines = [line for line in public_text("".join(traceback.format_exception(error))).split("\n") if line]
    return "\n".join(f"  {shortened(line, _MAX_LINE)}" for line in lines[-_MAX_LINES:])
