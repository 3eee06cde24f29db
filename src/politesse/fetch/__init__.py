"""Fetches files over HTTP. Your own fetcher can use its parts for redirects, bounded bodies and addresses."""

from politesse._http.body import BodyError, BoundedBody
from politesse._http.redirects import REDIRECTS, Hops
from politesse.fetch._addresses import PublicResolver
from politesse.fetch._aiohttp import AiohttpFetcher
from politesse.fetch._options import FetchOptions

__all__ = ["REDIRECTS", "AiohttpFetcher", "BodyError", "BoundedBody", "FetchOptions", "Hops", "PublicResolver"]
