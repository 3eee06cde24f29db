"""Thousands of hosts on loopback, and crawlers that find their pages by following links."""
