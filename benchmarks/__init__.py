"""The cost of politesse beside its peers: ``python -m benchmarks --help``.

Needs the peers, which the extra ``bench`` installs. ``faults`` counts requests; all other results are ratios from one
run: every round times each contender in turn, and a ratio is the median of the ratios of the rounds, with their
quartiles. Absolute times are there for orientation. Answers are compared before anything is timed: a difference without
a known reason ends the run.

A benchmark is a module with ``run(settings) -> Iterable[Reported]``, and an entry in the table of ``__main__``. It
yields the paragraphs of its report, figures, which ``budgets`` compares with their budgets, and series for the plots.
"""
