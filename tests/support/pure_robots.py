"""A robots.txt as the reference in Python reads it, beside the compiled core."""

import pytest

from politesse.robots import Dialect, RobotsTxt


def pure_robots(body: bytes | str, dialect: Dialect = Dialect.RFC9309) -> RobotsTxt:
    """Return a file as the reference reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("politesse.robots.document.native_outline", lambda *_: None)
        return RobotsTxt.parse(body, dialect)
