"""What a page itself says to crawlers. Pure: no clock, no socket, no event loop.

::

    headers ──────────────────────────────> statements ─> PageDirectives
    octets ─ encoding ─> text ─ tags ─> html ─┘       └─> followable_links, response_usage
    tdmrep.json ─> tdmrep_usage

Reading HTML needs the extra ``html``; what headers say is read without it.
"""

from politesse.page.directives import PageAnswer, PageDirectives
from politesse.page.headers import Headers
from politesse.page.html import Html, Link, Meta, is_html, may_be_html, read_html
from politesse.page.links import followable_links
from politesse.page.preferences import response_usage
from politesse.page.statements import Directive, Statement
from politesse.page.tdmrep import TdmRep, parse_tdmrep, tdmrep_usage

__all__ = [
    "Directive",
    "Headers",
    "Html",
    "Link",
    "Meta",
    "PageAnswer",
    "PageDirectives",
    "Statement",
    "TdmRep",
    "followable_links",
    "is_html",
    "may_be_html",
    "parse_tdmrep",
    "read_html",
    "response_usage",
    "tdmrep_usage",
]
