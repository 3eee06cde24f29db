"""Judges the requests of a crawler from a log, for ``assert_polite``, ``politesse demo`` and ``politesse audit``.

The judge does not use the parser, the matcher or the pacing of the library: the caller passes the expectations of each
site.
"""

from politesse._judge.trace import CLOSING, TraceJudge
from politesse._judge.violation import Exchange, Expectation, Kind, Promises, Violation, token_finder

__all__ = ["CLOSING", "Exchange", "Expectation", "Kind", "Promises", "TraceJudge", "Violation", "token_finder"]
