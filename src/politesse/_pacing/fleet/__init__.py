"""One pace for a fleet of processes: each process asks a shared Redis before it starts a request.

A fleet is one seam of ``Hosts``. All waiting is done in the lines of each process. When a lane of a host is due, or
nearly due, the process asks Redis for a *ticket*, a start that nobody else gets. With the ticket, it calls the first
waiter. Nothing else is different from a process alone.

The state of a key. Each host is one hash in Redis; ``scripts/state.lua`` lists its fields. Only scripts change the
hash, and they use the clock of Redis. An answer states the wait as a duration. No process compares a time of Redis with
its wall clock. So the wall clocks of processes need not agree.

    stored            fields           until
    a granted ticket  lease:T          the request ends; the ticket is given back; the lease ends; or its owner no
                                       longer names it, because the answer was lost
    the last request  before           a later request replaces it; or the key expires, after ten minutes or more
    a closure         closed, why      a closure with a later end replaces it; or the key expires
    a claim           claim            its owner has its turn, or does not ask again in time

    step.lua    one step of a process at a host: what is under way there, what has ended, a closure, and the wish for
                the next start; each part may be absent
    member.lua  a report of a process to the roster

Besides the hosts, each server has one roster of the processes (``member.lua``, ``Roster``). The roster names the
present round. A round ends when the server loses data, or when its clock is set.

Who is next. Redis has no queue. If a process has to wait, Redis tells it how long, and keeps one *claim* for the
process that has waited for the longest time since its last turn. The claimer goes first for a moment: the others are
told to wait until then. So processes that always want the same host take turns. A process whose turn is far off asks
less often.

Why no start is too early. ``tickets.py`` lists when a ticket is used. One more condition is here: with one request at a
time, the interval counts from the end of the last request, and is longer by at most 10 ms, for the drift of the clocks
(``spacing_s``). The message about the end reaches Redis after the end, and says how long ago the end was. If several
requests may be under way at a host, the interval counts from start to start, and is longer by the time by which a start
may be late. A call that reaches Redis so late that its process has given it up changes nothing.

Two leases. A ticket that is not used holds its host for ten seconds (``first_lease_s``), a request that lasts for
``lease_s``, renewed by its process. So a process that is killed silences the hosts that it does not request only for a
short time.

A server that has lost data does not know when the last request ended. So in a new round a host waits for the interval
of its next request, counted from the begin of the round, and at least for ``HOLD_S``. Only the processes that have
requested a host know its adaptive interval. Before these processes report, they send this interval, their requests
under way and the closed hosts again. No request starts until all known processes have reported, or ``lease_s`` seconds
have passed. The first process of a new fleet waits in the same way.

While Redis is away, no request starts. When Redis is back, each process tells what has ended meanwhile.

A closure is told to Redis at once, and reaches another process with the answer to its next step. A process that has a
ticket already may make one more request. If several requests may be under way at a host, a ticket is granted only when
its start is due, because any of them may be refused. Otherwise only a request for robots.txt or the program itself can
close the host meanwhile; the ticket is then used within two seconds (``_AHEAD_S``), because a start that is further off
is waited for without a ticket.

The parts, from the request down to Redis:

    Hosts              ../hosts.py      ``Host`` asks before it calls a waiter
      `- Tickets       tickets.py       the claims of the process: what it wants and has at each key
           `- FleetLink     link.py     the task that connects, sends the news of claims, and connects again
                |- Roster        link.py         whether the server has lost data, and whether all have reported
                |- ServerClock   server_clock.py whether the clock of the server runs as it should
                `- FleetWire     wire.py         the connection to one Redis or to a cluster

``status.py`` reads the hosts for ``politesse fleet status``, and changes nothing.
"""
