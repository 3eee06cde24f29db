"""The semantics of HTTP: freshness, rate limits, redirects, bodies, signatures. Pure."""
