"""When the next request to a host may start, and what binds it."""
