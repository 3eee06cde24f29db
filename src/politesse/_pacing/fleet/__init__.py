"""One pace for a fleet of processes: each process asks a shared Redis before it starts a request.

The state of a key. Each host is one hash in Redis; ``scripts/state.lua`` lists its fields. Only scripts change the
hash, and they use the clock of Redis. An answer states the wait as a duration. An answer also has two times of Redis
(``at_us``, ``version``). No process compares these times with its wall clock. So the wall clocks of processes need not
agree. For each request, a process makes a ticket T. The main fields are:

    stored             fields                 until
    a queued ticket    queue                  T is granted, answered ``wait``, or given back
    a granted ticket   start:T, lease:T       the request ends; T is given back; the lease ends; or a new session of the
                                              owner shows that the request has ended
    the last request   last, before           a later request replaces it; or the key expires, after ten minutes or more
    a closure          closed, why, version   a closure with a later end replaces it; or the key expires

    reserve.lua   grants a start, or puts the ticket into the queue
    release.lua   ends a request, or takes a ticket back; then grants the tickets in the queue that have room
    renew.lua     extends the lease of a request that is under way, in the present session of its owner
    close.lua     closes the host until ``closed``; grants that are older than ``version`` are void

Besides the hosts, each server has one roster of the processes (``member.lua``, ``roster.py``). The roster names the
present round. A round ends when the server loses data, or when its clock is set.

The steps of a request.

1.  The request waits in the line of its process until it is first in line and its interval is over (``Hosts``).
    Then the request has a LocalPermit, and holds the permit while its process asks Redis.
2.  The reserver makes a ticket, and runs ``reserve.lua`` with the interval, the tolerance of the start, and the lease.
    For each host, a process asks for one request at a time.
3.  If the host has room, Redis grants a start: the latest of now, one interval after the last request, and the end of a
    closure. Redis stores the start and the lease, and answers how long to wait. Otherwise the ticket waits in the queue
    of the host. If the start is too far away, the answer is ``wait``: Redis stores neither the start nor the ticket.
4.  When a script makes room at the host, it also grants a queued ticket. Redis publishes the answer to the owner of the
    ticket. When a lease ends, Redis runs no script, so the waiting process has to reserve its ticket again.
5.  The process waits as long as the answer says, by its monotonic clock. Then it checks that the grant is still valid.
6.  If the grant is valid, ``LocalPermit.renew`` checks that the Hosts would still grant the LocalPermit. Then
    the process gives out the FleetPermit, and the request starts. If the grant is void, the process reserves the ticket
    again.
7.  If ``LocalPermit.renew`` returns False, or the answer says that the host is closed, the request goes back into the
    line of its process.
8.  While the request is under way, its process extends the lease (``renew.lua``). If the process dies, the lease ends.
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
``slack``, the time by which a start may be late. Otherwise the interval counts from the end of the last request, and is
longer by at most 10 ms, for the drift of the clocks (``spacing_s``). The message about the end reaches Redis after the
end, so a delay of the message can only make the next start later.

While Redis is away, no request starts. When Redis is back, each process reports the requests that have ended meanwhile.

The parts, from the request down to Redis:

    FleetPacer        pacer.py         the port: wraps the pacer of this process, which has the lines
      `- Reserver     reserver.py      reserves starts, judges grants, reports ends and closures
           |- Reservation, FleetPermit reservation.py  a ticket, and the permit that it becomes
           `- FleetLink                link.py         the task that connects and exchanges calls, and connects again
                |- Outbox              messages.py     the calls in their order, and the answers
                |- Roster              roster.py       whether the server has lost data, and which processes report
                |- ServerClocks        server_clock.py whether the clock of the server runs as it should
                `- FleetWire           wire.py         the connections to one Redis or to a cluster

``status.py`` reads the hosts for ``politesse fleet status``, and changes nothing.
"""
