"""The options of a gatekeeper (cache, fetching, pace, fleet, single hosts), and a pace that several gates share.

``load`` reads the options from files.

The names of values, such as ``PrivateAddresses``, are for the annotations of programs that pass options on.
"""

from politesse._cache.options import CacheOptions, HostPolicy, OnForbidden, OnTooManyRequests
from politesse._gate.assemble import Mode
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import Limit, OnLongCrawlDelay, PacingKey, PacingOptions
from politesse._pacing.shared import SharedPacer
from politesse._settings import GateArguments, load
from politesse.fetch._addresses import PrivateAddresses
from politesse.fetch._options import FetchOptions

__all__ = [
    "CacheOptions",
    "FetchOptions",
    "FleetOptions",
    "GateArguments",
    "HostPolicy",
    "Limit",
    "Mode",
    "OnForbidden",
    "OnLongCrawlDelay",
    "OnTooManyRequests",
    "PacingKey",
    "PacingOptions",
    "PrivateAddresses",
    "SharedPacer",
    "load",
]
