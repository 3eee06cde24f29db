"""An import path of earlier releases; use ``politesse.fetch``."""

from politesse._http.redirects import REDIRECTS, Hops

__all__ = ["REDIRECTS", "Hops"]
