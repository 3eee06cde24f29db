"""What a page itself says to crawlers. Pure: no clock, no socket, no event loop.

::

    headers ──────────────────────────────> statements ─> PageDirectives
    octets ─ encoding ─> text ─ tags ─> html ─┘       └─> followable_links

Reading HTML needs the extra ``html``; what headers say is read without it.
"""

from politesse.page.directives import PageAnswer, PageDirectives
from politesse.page.headers import Headers
from politesse.page.html import Html, Link, Meta, is_html, read_html
from politesse.page.links import followable_links
from politesse.page.statements import Directive, Statement

__all__ = [
    "Directive",
    "Headers",
    "Html",
    "Link",
    "Meta",
    "PageAnswer",
    "PageDirectives",
    "Statement",
    "followable_links",
    "is_html",
    "read_html",
]
