"""What politesse costs beside its peers: ``python -m benchmarks --help``.

Needs the peers, which the extra ``bench`` installs. All results but those of ``faults``, which counts what is requested
of whom (by Scrapy, too, where it is installed), are ratios from one run: every round times each contender in turn, and
a ratio is the median of the ratios of the rounds. Absolute times are there for orientation.

A benchmark is a module with ``run(settings) -> Iterable[str]``, the paragraphs of its report, and an entry in the
table of ``__main__``.
"""
