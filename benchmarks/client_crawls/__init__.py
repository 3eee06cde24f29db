"""Crawlers of the demo's sites, one for each client, each with politesse and without it.

``python -m benchmarks.client_crawls.httpx PLAN`` crawls from the plan's front pages and follows all links. Without
politesse, a client keeps its own settings, and obeys robots.txt by its own means, if it has any.
"""
