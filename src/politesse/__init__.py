"""The politeness layer for async crawlers."""

__version__ = "0.1.0"
