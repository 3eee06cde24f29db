"""Directives and usage preferences that a page states itself. Pure: no clock, no socket, no event loop.

::

    headers ──────────────────────────────> statements ─> PageDirectives
    octets ─ encoding ─> text ─ tags ─> html ─┘       └─> followable_links, response_usage
    tdmrep.json ─> tdmrep_usage

HTML needs the extra ``html``; headers do not.
"""

from politesse._http.fields import Headers
from politesse.page.directives import Directive, DirectiveStatement, PageAnswer, PageDirectives
from politesse.page.html import Html, Link, Meta, is_html, may_be_html, read_html
from politesse.page.links import followable_links
from politesse.page.preferences import response_usage
from politesse.page.tdmrep import TdmRep, parse_tdmrep, tdmrep_usage

__all__ = [
    "Directive",
    "DirectiveStatement",
    "Headers",
    "Html",
    "Link",
    "Meta",
    "PageAnswer",
    "PageDirectives",
    "TdmRep",
    "followable_links",
    "is_html",
    "may_be_html",
    "parse_tdmrep",
    "read_html",
    "response_usage",
    "tdmrep_usage",
]
