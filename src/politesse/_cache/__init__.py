"""The copies of robots.txt and other files: fetched once, kept while fresh, revalidated in the background.

The modules::

    cache.py          the cache of files of any kind: one fetch for all waiters, refresh, eviction
    robots.py         the cache of robots.txt, with compiled rules
    files.py          the cache of other files, such as data.txt
    entry.py          an entry: a record and its meaning at present
    record.py         a record: the copy, or the trouble of its fetches
    outcome.py        the meaning of a record, by its age and the options
    options.py        the options, and the meaning of statuses
    fetching.py       fetches with redirects, in the pace of each host
    admission.py      limits how many fetches are under way
    records.py        keeps records in a store, with or without leases
    guarded_store.py  a store whose late or failed calls harm nothing
    codec.py          the format of the values in a store
    host_memory.py    keeps the states of hosts in the store
"""
