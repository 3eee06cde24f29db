"""Audits logs: which requests of a crawler broke the rules? The command ``politesse audit`` does the same.

::

    Audit         judges the requests in logs
    AuditOptions  the crawlers to judge, and the rules
    Finding       a request that should not have been made
    HostAudit     the sums for a crawler and a host
    LogError      says why a log cannot be read, or proves nothing
"""

from politesse.audit._audit import Audit, Finding, HostAudit
from politesse.audit._logs import AuditOptions, LogError

__all__ = ["Audit", "AuditOptions", "Finding", "HostAudit", "LogError"]
