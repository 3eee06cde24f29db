"""The question that a crawl worker asks before each request."""
