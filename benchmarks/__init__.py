"""What politesse costs beside its peers: ``python -m benchmarks --help``.

Needs the peers, which the extra ``bench`` installs. All results but those of ``faults``, which counts what is requested
of whom (by Scrapy, too, where it is installed), are ratios from one run: every round times each contender in turn, and
a ratio is the median of the ratios of the rounds, with their quartiles. Absolute times are there for orientation.
Answers are compared before anything is timed: a difference that has no known reason ends the run.

A benchmark is a module with ``run(settings) -> Iterable[Reported]``, and an entry in the table of ``__main__``. It
yields the paragraphs of its report, figures, which ``aims`` holds against the targets, and series that are plotted.
"""
