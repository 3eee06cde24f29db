"""Decides when the next request to a host may start, and which request is next.

The parts, from the gate inwards::

    gate --- TurnRequest(host, origin, agent, pace, url, min_delay_s, check_lines) --> Permit
      |
    GateShare      shared.py   the waiters of a gate end with that gate
      |
    SharedPacer    shared.py   given to gates, or that of their event loop: Hosts while one of its gates is open
      |
    Hosts          hosts.py    the hosts of this process, with their lines, and the limits of addresses and domains
      |- Host, Lane, Scope, LocalPermit  hosts.py   the phases of a host and of a request: read this file first
      |- Wakeups, Recalls  hosts.py   one heap of timers for all hosts; states of an earlier process (host_state.py)
      |- Reports, PermitExpiry, LocalFetch  hosts.py   events, long waits; permits that expire; requests for robots.txt
      |- Demand     demand.py      what the answers of a host ask for, and the formula for the next start (pure)
      |                            refusals.py has the meanings of answers, pace.py the stated paces (pure)
      |- Marks      marks.py       the last requests and demands, which stay in the process when the pacer closes
      |- FetchLines fetch_lines.py the lines of the requests for robots.txt
      |- Addresses  addresses.py   domains, and look-ups of addresses
      `- Tickets    fleet/tickets.py  only with a fleet: a host asks Redis before it calls its first waiter

The words::

    host      what is paced: a host name at all its schemes and ports, or an address or a domain
    scope     a further limit for all hosts at an address, or in a domain
    lane      the requests of one agent and floor at a host: they have the same pace
    floor     the least interval that the options permit
    waiter    a task or a callback that stands in line at its host
    permit    the pacing half of a turn: a place among the requests under way
    demand    what the answers of a host ask for: closure, backoffs, response time, quota
    closure   a time in which a host gets no request
    backoff   the length of the next closure; it doubles with each refusal in a row
    ticket    what the Redis of a fleet grants for a permit; a claim asks for it

Where to change what:

* A type of headers of another HTTP client: ``_http/fields.py`` joins the lines of each header of an answer before
  anything reads them.
* A new header that slows the pace: let ``remaining_quota`` in ``_http/ratelimit.py`` read it as a quota, so many
  requests until a time, and add its name to ``QUOTA_FIELDS`` there. ``Demand`` applies, stores and forgets every quota
  in the same way, with ``Bound.RATE_LIMIT``.
* A new header that asks for a time without requests: let ``retry_after_s`` in ``_http/freshness.py`` read it, and add
  its name to ``PACE_HEADERS`` in ``refusals.py``.
* A status or header that means BUSY or REFUSED: change ``meaning_of`` and the table in ``refusals.py``. Add the name of
  the header to ``PACE_HEADERS``, or it is never read, and its words to ``described_refusal``.
* A header that marks a challenge: add it to ``CHALLENGES`` and the table in ``refusals.py``. It counts for pages and
  for robots.txt.
* A bound that closes the host: add it to ``CLOSINGS`` of ``verdict.py`` and to ``closings`` of ``state.lua``.
* A new statement of robots.txt: add its name to ``_OTHER_FIELDS`` in ``robots/dialect.py``, and its parser to
  ``DIRECTIVES`` in ``robots/other_records.py``. ``RuleSet._obey`` keeps its value. Add the value to ``stated_pace`` and
  ``longest_stated_s`` in ``pace.py``, and to ``has_interval`` in ``Permission.__init__``. A value that depends on the
  time of day belongs in ``Timetable``, because ``Lane.record`` sets ``timed`` by the timetable only. Add the name of
  the statement to ``Bound`` (``verdict.py``), and to ``WAITS_OF_SITE`` (``queue/_dispatch.py``), or the wait does not
  count for ``max_wait_s``.
* A new scope: add its key to ``Hosts._key_of``, and its Limit to ``limits`` in ``Hosts.__init__``. Add the option to
  ``PacingOptions``: its field, ``key``, the checks and ``is_scoped``. Add the name to ``SCOPES`` in
  ``fleet/status.py``, and to ``_pacer`` in Scrapy's ``_settings.py``: spiders with different limits must not share a
  pacer. If the key needs a look-up of its own, add it to ``_knows`` and ``_look_up``.
"""
