"""What sites say about the use of their content: the model, and the vocabularies that they say it in."""

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
