"""Fetching a file over HTTP, and the parts for a fetcher of your own: redirects, bounded bodies, addresses."""

from politesse._http.body import BodyError, BoundedBody
from politesse._http.redirects import REDIRECTS, Hops
from politesse.fetch.addresses import PublicResolver
from politesse.fetch.aiohttp import AiohttpFetcher
from politesse.fetch.options import FetchOptions

__all__ = ["REDIRECTS", "AiohttpFetcher", "BodyError", "BoundedBody", "FetchOptions", "Hops", "PublicResolver"]
