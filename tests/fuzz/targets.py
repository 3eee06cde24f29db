"""All fuzz targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import body, document, headers, lint, matching, page, urls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    module.TARGET.name: module.TARGET for module in (document, matching, headers, urls, body, lint, page)
}
