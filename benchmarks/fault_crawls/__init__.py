"""Crawlers that ask a faulty server for a page and for a private page, each in a process of its own.

A crawler is a module that is run with ``-m``. It reads a ``Task`` from standard input and writes what happens to
standard output, a JSON object a line, at once, so that one that is killed has still told what it did.
"""
