"""``python -m benchmarks fleet --simulate``: what a crawl of 100 million hosts asks of the Redis of its fleet."""

from benchmarks.fleet_model.page import run

__all__ = ["run"]
