"""The kinds of violations, as ``assert_polite``, the audit and the demo name them."""

from typing import Final

FORBIDDEN: Final = "forbidden page requested"
BEFORE_ROBOTS: Final = "page requested before robots.txt"
WHILE_CLOSED: Final = "page requested without a usable robots.txt"
STALE: Final = "page requested with a robots.txt that is too old"
REFETCHED: Final = "robots.txt requested again too soon"
RETRIED_EARLY: Final = "robots.txt requested before Retry-After was over"
RETRY_AFTER: Final = "page requested before Retry-After was over"
OVERLAP: Final = "page requested while another request was under way"
GAP: Final = "page requested too soon after the request before"
