"""When the next request to a host may start, which source binds it, and which request is next.

The parts, from the inside out. Each pacer implements ``politesse.ports.Pacer``::

    gate --- TurnRequest(host, origin, agent, pace, url, min_delay_s) --> Permit
      |
    GateShare      shared.py   only if several gates share a pacer: the waiters of a gate end with that gate
      |
    ScopedPacer    scoped.py   only with key=, address= or domain=: a pacer for each scope, asked in the order
      |                        host, domain, address; scopes.py finds the keys, offers.py waits for callbacks
      |
    FleetPacer     fleet/      only with a fleet: the request that is first here reserves its start in Redis
      |
    LocalPacer     local.py    the hosts of this process: closings, limits, requests for robots.txt
      |  LocalLines  lines.py   clocks, timer, tasks: it checks each host when its time has come
      |- PacedHost      host.py      the state machine of a host: phases, line, requests under way (pure)
      |   |- AgentPace    permit.py    the pace of an agent, and its waiters; Waiter and LocalPermit are there, too
      |   |- HostBackoff  backoff.py   answers of the host: closings, adaptive delay, quotas (pure)
      |   `- earliest_start  pace.py   the formula for the next start, and PacingOptions (pure)
      |- ActiveHosts    hosts.py     active hosts, and when idle ones were last requested
      |- Wakeups        hosts.py     one heap and one timer for all hosts
      |- Reports, PermitExpiry  reports.py   events, long waits, permits that expire
      |- FetchLines     local.py     requests for robots.txt, which have a line of their own
      `- Recalls        recall.py    states of an earlier process (host_state.py)

``making.py`` assembles the parts. ``lines.py`` describes the steps of a turn, ``host.py`` the phases and the line.

Where to change what:

* A new header that slows the pace: add it to ``PACE_HEADERS`` in ``backoff.py``. ``HostBackoff.observe`` reads the
  header. ``slow`` applies it, or ``close`` closes the host. ``BackoffRecord`` keeps its numbers. Add its name to
  ``Bound`` (``_reasons.py``). Add a bound that closes the host also to ``CLOSINGS`` in ``state.lua``, ``_CLOSINGS`` in
  ``fleet/messages.py``, ``CLOSURES`` in ``queue/_robots.py`` and ``_CLOSURES`` in Scrapy's ``_waits.py``.
* A new statement of robots.txt: change ``StatedPace`` in ``politesse.ports``, and ``stated_pace`` in ``pace.py``.
* A new scope: write a function from a host to its key in ``scopes.py``, add an entry in ``ScopedPacer.__init__``, and
  add the option to ``PacingOptions``, with its checks and ``is_scoped``. Add the name to ``SCOPES`` in
  ``fleet/status.py``.
"""
