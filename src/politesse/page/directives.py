"""What a page says to robots: in its headers and in its METAs. Pure.

Only a response that was allowed to be fetched has anything to say: of a page that robots.txt forbids the directives
are unknown, which is another thing than that there are none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from politesse._http.dates import http_date, iso_date
from politesse.page.headers import content_type, cut_lines, header_lines, header_pairs
from politesse.page.html import MAX_BYTES, Html, read_html
from politesse.page.statements import Statement, parse_members, parse_scoped, parse_unscoped
from politesse.robots.agents import product_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from politesse.page.headers import Headers
    from politesse.page.html import Meta

_HEADERS: Final = (("X-Robots-Tag", parse_scoped), ("Robots-Tag", parse_members))
_EVERYBODY: Final = "robots"
_NAMES = re.compile(r"[\s,;\"'\u2018\u2019\u201c\u201d\u200b\ufeff]+")  # with the quotes of word processors, too
_NUMBER = re.compile(r"-1|[0-9]{1,10}")
_DAYS = re.compile(r"([0-9]{1,5})\s*(?:days?)?", re.IGNORECASE)
_PREVIEWS: Final = ("none", "standard", "large")  # from the most restrictive on
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Whether something may be done with a page, and what decided; true only for allowed.

    Attributes:
        to: what was asked about: ``index``, ``follow``, ``archive``.
        against: the statements that forbid it; none where it is allowed.
    """

    to: str
    against: tuple[Statement, ...] = ()

    @property
    def allowed(self) -> bool:
        """The answer."""
        return not self.against

    def __bool__(self) -> bool:
        return self.allowed

    def __str__(self) -> str:
        if self.allowed:
            return f"may {self.to}: nothing on the page forbids it"
        return f"must not {self.to}: " + "; ".join(map(str, self.against))


@dataclass(frozen=True, slots=True)
class PageDirectives:
    """What a page says to one crawler: all that names it, and all that names nobody.

    Of statements that contradict each other the most restrictive holds (Google's page; draft-illyes-repext-00 2.2).

    Attributes:
        statements: all directives that are for the crawler, headers first; those that mean nothing here, too, as
            ``noai``.
        metas: the METAs that were read, with those for other crawlers and for other things.
        truncated: whether it may say more than this: the page, or a header, was longer than what is read of it, or
            there was a body that could not be read.
        licenses: the addresses of its ``<link rel="license">`` (RSL), as written.
        base_href: its ``<base href>`` as written, which those are relative to; None where there is none.
    """

    statements: tuple[Statement, ...] = ()
    metas: tuple[Meta, ...] = ()
    truncated: bool = False
    licenses: tuple[str, ...] = ()
    base_href: str | None = None

    @classmethod
    def from_response(
        cls,
        headers: Headers,
        body: bytes | None,
        token: str | Sequence[str] = (),
        *,
        in_body: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> PageDirectives:
        """Read what the response to a page says; never raises on its content.

        Args:
            headers: see ``politesse.page.Headers``.
            body: its octets, without content coding; None where there is none, or none is to be read.
            token: the crawler's product token, its User-Agent string, or several tokens: what names any counts.
            in_body: whether METAs in BODY count, too. For Google they do; in other texts only those in HEAD, because
                what lies in BODY may be a visitor's.
            max_bytes: the octets of the body that are read.

        Raises:
            ImportError: where there is HTML to read, and the extra ``html`` is missing.
        """
        pairs = header_pairs(headers)
        html = read_html(body, content_type(pairs), in_body=in_body, max_bytes=max_bytes) if body else None
        return cls.from_html(pairs, html, token)

    @classmethod
    def from_html(cls, headers: Headers, html: Html | None, token: str | Sequence[str] = ()) -> PageDirectives:
        """Do what ``from_response`` does, with a page that was read before; None for one that is no HTML."""
        names = {product_token(name) for name in ([token] if isinstance(token, str) else token)} - {""}
        html = html or Html()
        pairs = header_pairs(headers)
        statements: list[Statement] = []
        truncated = html.truncated
        for field, parse in _HEADERS:
            lines, cut = header_lines(pairs, field.lower())
            truncated |= cut
            for number, line in enumerate(lines, 1):
                statements += (
                    Statement(directive, field, number, line)
                    for directive in dict.fromkeys(parse(line))
                    if not directive.scope or directive.scope in names
                )
        mine = [(number, meta) for number, meta in enumerate(html.metas, 1) if _speaks_to(meta, names)]
        contents, cut = cut_lines(meta.content for _, meta in mine)
        for (number, meta), content in zip(mine, contents, strict=False):
            field = f"META {meta.name.lower()}"
            directives = dict.fromkeys(parse_unscoped(content))
            statements += (Statement(directive, field, number, content) for directive in directives)
        return cls(tuple(statements), html.metas, truncated or cut, html.licenses, html.base_href)

    def named(self, *names: str) -> tuple[Statement, ...]:
        """Return the statements with one of these directives, as the vocabulary spells them."""
        return tuple(statement for statement in self.statements if statement.name in names)

    def may_index(self, now: float, *, embedded: bool = False) -> PageAnswer:
        """Whether the page may be indexed at the Unix time ``now``: NOINDEX, NONE, and ``unavailable_after``.

        ``embedded`` asks about it as a part of another page, in an IFRAME: there ``indexifembedded`` lifts NOINDEX.
        """
        lifted = embedded and bool(self.named("indexifembedded"))
        forbidding = () if lifted else self.named("noindex", "none")
        # Not "now >= date", so that a time that is no number forbids.
        expired = (statement for statement, date in self._expiries() if not now < date)
        return PageAnswer("index", (*forbidding, *expired))

    @property
    def may_follow(self) -> PageAnswer:
        """Whether its links may be followed: NOFOLLOW, NONE."""
        return PageAnswer("follow", self.named("nofollow", "none"))

    @property
    def may_archive(self) -> PageAnswer:
        """Whether a copy of it may be kept to be shown: NOARCHIVE, and ``nocache``, which is Bing's word for it."""
        return PageAnswer("archive", self.named("noarchive", "nocache"))

    @property
    def may_snippet(self) -> PageAnswer:
        """Whether a part of its text, or of its video, may be shown: ``nosnippet``, and ``max-snippet:0``."""
        zero = (statement for statement, limit in self._limits("max-snippet") if limit == 0)
        return PageAnswer("show a snippet", (*self.named("nosnippet"), *zero))

    @property
    def may_translate(self) -> PageAnswer:
        """Whether a translation of it may be offered: ``notranslate``."""
        return PageAnswer("translate", self.named("notranslate"))

    @property
    def may_index_images(self) -> PageAnswer:
        """Whether the images on it may be indexed: ``noimageindex``."""
        return PageAnswer("index images", self.named("noimageindex"))

    @property
    def max_snippet(self) -> int | None:
        """How many characters of text may be shown, 0 for none; None where nothing limits it."""
        return self._least("max-snippet") if self.may_snippet else 0

    @property
    def max_video_preview_s(self) -> int | None:
        """How many seconds of a video may be shown, 0 for a still image; None where nothing limits it."""
        return self._least("max-video-preview")

    @property
    def max_image_preview(self) -> str | None:
        """How large an image may be shown: ``none``, ``standard`` or ``large``; None where nothing limits it."""
        sizes = {statement.value.lower() for statement in self.named("max-image-preview")}
        return next((size for size in _PREVIEWS if size in sizes), None)

    @property
    def unavailable_after(self) -> float | None:
        """The Unix time from which on it must not be indexed, the earliest of several; None where there is none."""
        return min((date for _, date in self._expiries()), default=None)

    @property
    def description(self) -> str:
        """Its META DESCRIPTION; empty where there is none."""
        return next((content.strip() for content in self._contents("description")), "")

    @property
    def keywords(self) -> tuple[str, ...]:
        """The words of its META KEYWORDS, in their order."""
        words = chain.from_iterable(content.split(",") for content in self._contents("keywords"))
        return tuple(word.strip() for word in words if word.strip())

    @property
    def revisit_after_days(self) -> int | None:
        """In how many days it asks to be visited again, the most of several; None where it does not say."""
        found = (_DAYS.fullmatch(content.strip()) for content in self._contents("revisit-after"))
        return max((int(days[1]) for days in found if days is not None), default=None)

    def _contents(self, name: str) -> Iterator[str]:
        return (meta.content for meta in self.metas if meta.name.lower() == name)

    def _limits(self, name: str) -> Iterator[tuple[Statement, int]]:
        """Yield the limits that can be read, without those that lift it."""
        for statement in self.named(name):
            if _NUMBER.fullmatch(statement.value) is not None and (limit := int(statement.value)) != _NO_LIMIT:
                yield statement, limit

    def _least(self, name: str) -> int | None:
        return min((limit for _, limit in self._limits(name)), default=None)

    def _expiries(self) -> Iterator[tuple[Statement, float]]:
        for statement in self.named("unavailable_after"):
            date = page_date(statement.value)
            if date is not None:
                yield statement, date


def page_date(text: str) -> float | None:
    """Return the date of ``unavailable_after`` as Unix time: RFC 822, RFC 850 or ISO 8601; None where it is none.

    One without a time is the start of its day, one without a zone in UTC.
    """
    date = iso_date(text)
    if date is None:
        date = http_date(text)
    return http_date(f"{text} 00:00:00 GMT") if date is None else date


def _speaks_to(meta: Meta, names: Iterable[str]) -> bool:
    said = set(_NAMES.split(meta.name.lower()))
    return _EVERYBODY in said or not said.isdisjoint(names)
