"""An independent model of gate, queue and crawl over a simulated web, in virtual time.

    world.py     the simulated web: sites with robots.txt and pages that change, a client for pages, a flaky store
    reading.py   a literal reading of robots.txt, Cache-Control and Retry-After
    judge.py     knows the rules, shares no code with the library, and judges each request when it arrives
    outcomes.py  follows each URL from ``put`` to its one outcome
    queues.py    queues with workers of their own, and queues that are crawled
    turns.py     tasks that take turns beside the queues
    meddling.py  what changes, is cancelled and is forgotten in the middle
    runs.py      draws a run from a seed, and moves its clock

``python -m tests.model --runs 3000 --seed 1 --jobs 2`` runs many crawls; ``--seed N --runs 1 --trace`` repeats one.
"""
