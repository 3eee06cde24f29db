"""The copies of robots.txt and other files: fetched once, kept while fresh, revalidated in the background.

The modules::

    cache.py          the caches: one flight for all waiters, refresh, eviction; robots.txt, as compiled rules
    outcome.py        a Copy, the table of what an answer makes of it, now and later, and the compiled rules
    options.py        the options, and the meaning of statuses
    fetching.py       fetches with redirects, in the pace of each host; limits how many fetches are under way
    records.py        keeps records of files, and states of hosts, in a store: their format, leases, failing stores
"""
