"""All fuzz targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import body, document, headers, lint, matching, native_reference, page, urls
from tests.fuzz.native import harness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    module.TARGET.name: module.TARGET
    for module in (document, matching, headers, urls, body, lint, page, native_reference, harness)
}
