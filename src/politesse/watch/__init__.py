"""Watch and steer a crawl from outside: a page and JSON over HTTP, served by the event loop that runs the crawl.

::

    await watch.serve(gate, queue, port=8900)  # or mount watch.app(gate, queue) in your own application

The modules of this folder::

    _app.py    who may ask; the routes, the stream of events, the orders, the server
    _table.py  the hosts: filtered and sorted in small steps, in full only where they are seen
    page.html  the page
"""

from politesse.watch._app import WatchServer, app, serve

__all__ = ["WatchServer", "app", "serve"]
