"""``python -m benchmarks fleet --simulate``: the load of a crawl of 100 million hosts on the Redis of its fleet."""

from benchmarks.fleet_model.page import run

__all__ = ["run"]
