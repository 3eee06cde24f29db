"""One pace for a fleet of processes: each process asks a shared Redis before it starts a request.

The life of a key. Each host is one hash in Redis; ``scripts/state.lua`` lists its fields. Only scripts change the hash,
and they use the clock of Redis. A script answers with the seconds to wait, not with a time, so the clocks of processes
need not agree.

    reserve.lua                              release.lua
    +------+   granted: lease and start   +-----------+   end: last = now      +--------------+
    | idle | ---------------------------> | under way | ---------------------> | interval     |--> idle
    +------+                              +-----------+                        | since `last` |
                                            |      ^                           +--------------+
                   another process reserves |      | the lease ends, or a new session of its owner shows that it is dead
                                            v      |
                                          queued: granted at the end, by a message to its owner

    close.lua: no request starts before `closed`, and grants that are older than `version` are void
    renew.lua: extends the lease of a request that is under way, in the present session of its owner

Besides the hosts, each server has one roster of the processes (``member.lua``, ``roster.py``). The roster names the
present round. A round ends when the server loses data, or when its clock is set.

The steps of a request.

1.  The request waits in the line of its process until it is first in line and its interval is over (``LocalPacer``).
    Then the request has a LocalPermit, and holds the permit while its process asks Redis.
2.  The reserver makes a ticket, and runs ``reserve.lua`` with the interval, the tolerance of the start, and the lease.
    For each host, a process asks for one request at a time.
3.  If the host has room, Redis grants a start: the latest of now, one interval after the last request, and the end of a
    closure. Redis stores the start and the lease, and answers how long to wait. Otherwise the ticket waits in the queue
    of the host. If the start is too far away, the answer is ``wait``, and nothing is stored.
4.  When a script makes room at the host, it also grants a queued ticket. Redis publishes the answer to the owner of the
    ticket. When a lease ends, Redis runs no script, so the waiting process has to reserve its ticket again.
5.  The process waits as long as the answer says, by its monotonic clock. Then it checks that the grant is still valid.
6.  If the grant is valid, the process checks that its own pacer would still grant the LocalPermit (``renew``). Then the
    process gives out the FleetPermit, and the request starts. If the grant is void, the process reserves the ticket
    again.
7.  If ``renew`` fails, or the answer says that the host is closed, the request goes back into the line of its process.
8.  While the request is under way, its process renews the lease. If the process dies, the lease ends.
9.  If an answer closes the host, the process runs ``close.lua``. Redis tells all processes with a lease at the host. A
    process with a queued ticket learns from its next answer that the host is closed.
10. When the request ends, ``release.lua`` drops the lease, stores the time of this request, and grants the first queued
    ticket.

Why no start is too early. A granted start is used only if, at that moment,

* the wait is over by the monotonic clock, which is read again after the timer;
* the start is late by at most ``tolerance``, counted from the moment at which the script was sent. So the grant is void
  if the process was stopped, or its event loop was blocked. A late start is reserved again with a longer tolerance, so
  that a slow connection slows the pace, but does not stop it;
* no other process has closed the host since the grant (``version``);
* the connection was not lost since the grant.

A server that has lost data does not know when the last request ended. So after the process reconnects, or if the server
has just started, a host waits for the interval of its next request, and at least for ``HOLD_S``. Only the processes
that have requested a host know its adaptive interval. Before these processes report, they send this interval, their
requests under way and the closed hosts again. No request starts until all known processes have reported, or ``lease_s``
seconds have passed.

If several requests may be under way at a host, the interval counts from start to start. The interval is then longer by
``slack``, the time by which a start may be late. Otherwise the interval counts from the end of the last request. The
message about the end reaches Redis after the end, so a delay of the message can only make the next start later.

While Redis is away, no request starts. When Redis is back, each process reports the requests that have ended meanwhile.

The parts, from the request down to Redis:

    FleetPacer        pacer.py         the port: wraps the pacer of this process, which has the lines
      `- Reserver     reserver.py      reserves starts, judges grants, reports ends and closures
           |- Reservation, FleetPermit reservation.py  a ticket, and the permit that it becomes
           `- FleetLink                link.py         the task that connects, and connects again
                |- Session             session.py      the exchange during a connection
                |- Outbox              messages.py     the calls in their order, and the answers
                |- Roster              roster.py       whether the server has lost data, and which processes report
                |- ServerClocks        server_clock.py whether the clock of the server runs as it should
                `- FleetWire           wire.py         the connections to one Redis or to a cluster

``status.py`` reads the hosts for ``politesse fleet status``, and changes nothing.
"""
