"""Tools for tests of crawlers: a clock, a fetcher, a resolver and a server that a test controls, and a judge.

::

    ManualClock        stands still until it is moved
    ScriptedFetcher    robots.txt answers without a network
    ScriptedResolver   addresses without DNS
    HostileServer      a real server on loopback that misbehaves as one of FAULTS
    assert_polite      judges whether a crawl was polite, by its requests and their times
"""

from politesse._judge import Exchange
from politesse.testing.hostile import FAULTS, Call, Fault, HostileServer
from politesse.testing.scripted import Answer, ManualClock, ScriptedFetcher, ScriptedResolver
from politesse.testing.trace import assert_polite

__all__ = [
    "FAULTS",
    "Answer",
    "Call",
    "Exchange",
    "Fault",
    "HostileServer",
    "ManualClock",
    "ScriptedFetcher",
    "ScriptedResolver",
    "assert_polite",
]
