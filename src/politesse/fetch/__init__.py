"""Fetches files over HTTP, and has the parts for your own fetcher: redirects, bounded bodies, addresses."""

from politesse._http.body import BodyError, BoundedBody
from politesse._http.redirects import REDIRECTS, Hops
from politesse.fetch._addresses import PublicResolver
from politesse.fetch._aiohttp import AiohttpFetcher
from politesse.fetch._options import FetchOptions

__all__ = ["REDIRECTS", "AiohttpFetcher", "BodyError", "BoundedBody", "FetchOptions", "Hops", "PublicResolver"]
