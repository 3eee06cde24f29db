"""The options of a gatekeeper, by what they concern: the cache, fetching, the pace, a fleet, and single hosts."""

from politesse._cache.options import CacheOptions
from politesse._gate.host_policy import HostPolicy
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import Limit, PacingOptions
from politesse.fetch.options import FetchOptions

__all__ = ["CacheOptions", "FetchOptions", "FleetOptions", "HostPolicy", "Limit", "PacingOptions"]
