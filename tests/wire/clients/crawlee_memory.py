"""The storage of Crawlee's tests."""

from crawlee import service_locator
from crawlee.storage_clients import MemoryStorageClient

_STORAGE = MemoryStorageClient()


def use_memory() -> None:
    """Keep Crawlee's own state in memory: files would be shared with the tests in other processes.

    Crawlee takes one storage for a process.
    """
    service_locator.set_storage_client(_STORAGE)
