"""Crawlers that ask a faulty server for a page and for a private page, each in a process of its own.

A crawler is a module that is run with ``-m``. It reads a ``Task`` from standard input and writes each event to
standard output at once, a JSON object a line, so that a killed crawler loses no event.
"""
