"""One pace for a fleet of processes: each asks the Redis that they share before a request starts.

Theory of operation. Each process has a pacer of its own, which keeps its lines, its watchers and what its own requests
have found out; ``pacer.py`` wraps it and adds what the fleet knows. A request first comes to the head of the line of
its process. Then it reserves its start in Redis, and only the head of a line does that:

    own pacer: line -> head -> reserve.lua -> granted: wait as long as it says -> checks -> request -> release.lua
                                           -> queued: behind requests of other processes; granted by a message
                                           -> closed: back into the line, which is closed as well from then on

All arithmetic on time is done in Lua, by the clock of Redis, and answers are waits: no clock of a process counts, but
the time that passes on its monotonic one. A granted start is used only if, at that moment,

* it is not early: the wait is over by the monotonic clock, which is read again after the timer;
* it is late by no more than its slack (``max_slack_s`` where it is alone at its host, because what comes next waits for
  its end), counted from the moment at which the question was sent. A process that was stopped, or whose event loop was
  blocked, finds its grant void, whatever else it has not heard of meanwhile. A start that was late is reserved again
  with twice the slack, so that a slow connection ends in slower spacing, not in none;
* the host was not closed by another process since the grant (``version``);
* the connection was not lost since the grant. A Redis that was away may have come back without what it knew. So each
  host waits out its interval, and at least ``HOLD_S``, after each connection. That is the interval of the request that
  is to start: what a robots.txt states for the agent of an earlier one does not bind it. What the answers of a host ask
  for binds all, and is known only to those that have asked it: so they make it known again, as well as the requests
  that are under way and the closings, within ``HOLD_S``; and the host waits out that interval from then on.

A process knows when its own request ended; Redis learns it later, when the report arrives. If only the end of one
request delays the next start, the grant names that request (``ended``) and the time that has to pass after its end
(``after_s``: the interval and the slack). The process that made the request counts this time from the end that it noted
before it sent ``release``. Other processes wait as long as Redis says. This never makes a start too early:

* After its own end, the process waits out the interval and the slack by one and the same clock.
* No other request ended later than that one. ``release.lua`` names it only if its lease has run since its grant, and
  nothing else was under way, granted or counted since then. So each end before it was known when it was granted, and it
  started an interval after them; each end after it, also one whose lease was over or that had no ticket, takes the name
  away, as does a lease that runs out, and a clock of Redis that is behind what was written. A grant that is given back
  costs it nothing.
* Nothing else starts meanwhile: the lease holds from the grant on, and the grant is here before the start. A closing
  voids the grant as before, and while one lasts no end is named. Where several may run at once there is none either:
  a start follows starts there. A start that is sooner than Redis reckons only adds to the distance from it to what
  follows.
* Delays only make it later: the wait begins at the own end, or at the answer if that comes after the start was due. A
  process that was stopped finds the grant void by lateness, as before.
* The grant of that request, its end and the question that follows lie within one connection: a loss forgets all ends,
  and an end is noted only if its grant is younger than the last loss. So the Redis that names a request has known all
  that came after it; after a loss, ``HOLD_S`` and the interval are waited out before the question, as before.
* A robots.txt fetched without a permit binds what is granted after Redis has heard of it, and what this process itself
  starts; a start that was granted to another process before is not moved by it, as before.

What cannot wait has its start reserved in the background (``held_starts.py``), a round trip less the slack before its
interval is over, so that the grant is here when it is due. A start that is not used in time is given back. And
``try_starts`` asks for many hosts in one round trip.

While Redis is away nothing starts. What has ended meanwhile is reported when it is back.
"""
