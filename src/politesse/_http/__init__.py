"""The semantics of HTTP: dates, freshness, rate limits, redirects, bodies. Pure."""
