"""The options of a gatekeeper (cache, fetching, pace, fleet, single hosts), and a pace that several gates share."""

from politesse._cache.options import CacheOptions
from politesse._gate.judge import HostPolicy
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import Limit, PacingOptions
from politesse._pacing.shared import SharedPacer
from politesse.fetch._options import FetchOptions

__all__ = ["CacheOptions", "FetchOptions", "FleetOptions", "HostPolicy", "Limit", "PacingOptions", "SharedPacer"]
