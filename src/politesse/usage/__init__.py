"""Usage preferences of sites: the model, and the parsers of each vocabulary."""

from politesse.usage.model import (
    License,
    Mechanism,
    Place,
    Preference,
    Purpose,
    Statement,
    Usage,
    Use,
    combine,
)

__all__ = ["License", "Mechanism", "Place", "Preference", "Purpose", "Statement", "Usage", "Use", "combine"]
