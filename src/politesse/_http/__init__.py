"""What HTTP means: dates, freshness, rate limits, redirects, bodies. Pure."""
