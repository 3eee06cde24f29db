"""An import path of earlier releases; use ``politesse.fetch``."""

from politesse._http.body import BodyError, BoundedBody

__all__ = ["BodyError", "BoundedBody"]
