"""What all that uses Redis or Valkey shares: clients by URL, what errors mean, and what a server must promise.

Each of its modules needs the extra ``redis``. Only ``library`` imports redis-py, so that its absence is reported once.
"""
