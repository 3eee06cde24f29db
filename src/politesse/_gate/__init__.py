"""The gate, which answers one question: may this URL be requested, and when?

The steps of a request::

    gate.turn(url)                                view.py        AgentView: the methods for users
      TurnWait.take()                             view.py        by ``async with``: TurnHeld?, judge, wait, judge again
        agent.judged(url)                         view.py        the permission that the copy of robots.txt keeps
          permission.verdict(url, ...)            view.py        the match of the target, and what explains it
        agent.fetched(url)                        view.py        if ``judged`` returns None; for ``exempt=``, exempted
        agent.turn_request(permission, verdict)   view.py        raises Disallowed, also for a pace that is too slow
        pacer.start(TurnRequest(...))             politesse._pacing
      Turn(verdict, permit)                       turn.py        held by the task until the request has ended
    turn.observe(status, headers); turn.end()     turn.py        -> permit.observe, permit.end

``peek`` and ``check`` stop at the verdict. ``try_turn`` asks ``pacer.try_start``, which never waits. Queues call
``try_turns``, which asks ``pacer.try_starts``. Queues and integrations use the second half of AgentView. The other
modules:

    gatekeeper.py   the gate with all its parts, and the view of its own agent
    assemble.py     builds the parts from the bottom up
    state.py        the parts that all agents of a gate share
    identity.py     the User-Agent and the product tokens of an agent
    usage.py        policy tokens, the reservations of tdmrep.json, and the enforcement of usage preferences
    hosts_known.py  the report of ``gate.hosts()``

The words; ``politesse._pacing`` and ``politesse.queue`` go on with theirs::

    origin      scheme, host and port: what has one robots.txt
    copy        what is known of the robots.txt of an origin, until it is fetched again
    agent       a crawler, by its product tokens; they choose the rules of a copy
    policy      what the operator of the crawler has set for a host, in place of robots.txt
    match       the answer of the rules to one target, and the rule that decided
    permission  what an agent may do at an origin, by a copy and a policy
    verdict     the answer to one URL, with its reasons
    turn        one request, from the question to the end; the task that holds it may make the request
"""
