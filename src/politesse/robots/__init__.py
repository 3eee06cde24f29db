"""The content of a robots.txt. Pure: no clock, no socket, no event loop.

::

    octets ─ lexer ─> lines ─ outline ─> lines of groups ─ rule_sets ─> Match
      └──────────────── native ───────────────┴───────────── native ────┘
                                 └ other_records ┬ crawl_directives ─> crawl-delay, request-rate, visit-time
                                                 └ preferences ──────> preferences on the use of content

``rule_sets`` makes the rules of a crawler from lines. ``document`` lists all lines and groups at the first access.
``explain`` explains an answer, ``lint`` finds the faults of a file.

In the dialects in which the most specific match decides, a compiled core (``politesse._native``) finds the groups and
compiles their rules. The core is used if it is built and POLITESSE_PURE is not 1. The Python modules are its reference,
and give the same answers.

All differences between dialects are in the table in ``dialect``, which has a row for each dialect.
"""

from politesse.robots.agents import product_token
from politesse.robots.crawl_directives import RequestRate, TimeWindow
from politesse.robots.dialect import Dialect
from politesse.robots.document import RobotsTxt
from politesse.robots.line import Group, Line, Quirk
from politesse.robots.native import IMPLEMENTATION
from politesse.robots.other_records import CleanParams, RejectedSitemap
from politesse.robots.rule_sets import RuleSet
from politesse.verdict import Match, Rule

__all__ = [
    "IMPLEMENTATION",
    "CleanParams",
    "Dialect",
    "Group",
    "Line",
    "Match",
    "Quirk",
    "RejectedSitemap",
    "RequestRate",
    "RobotsTxt",
    "Rule",
    "RuleSet",
    "TimeWindow",
    "product_token",
]
