"""The connections to a Redis Cluster; needs the extra ``redis``.

Each script has one key, so a call goes to the node that has its slot; redis-py follows MOVED and ASK. Calls of one key
go one after the other, those of several keys at once. A node that is away counts as a loss of all: until the cluster
has another one in its place no request starts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from politesse._pacing.fleet.messages import Server
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import Channel, failures, of_script
from politesse._redis.clients import cluster_client, name_of
from politesse._redis.library import NoScriptError, RedisCluster, ResponseError
from politesse._redis.servers import check_memory, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from politesse._pacing.fleet.messages import Reply, ScriptCall

_PRIMARIES: Final = RedisCluster.PRIMARIES
_MOST_PROBES: Final = 200  # keys among which one for each node is found


class ClusterWire:
    """The connections to a Redis Cluster; see ``messages.FleetWire``.

    Args:
        client: connects to it; closed with this. It must not retry.
    """

    counts_receivers = False  # a node counts its own only

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        self._channel = Channel(client)
        self._shas: dict[Script, str] = {}

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Return the wire to the cluster of which nodes are at a URL; see ``politesse._redis.clients``."""
        return cls(cluster_client(url, argument="fleet"))

    @property
    def name(self) -> str:
        """The addresses of the nodes that are known."""
        return name_of(self._client)

    async def open(self, channel: str, /) -> Server:
        """Connect, load the scripts and subscribe."""
        with failures(self.name):
            await self._client.initialize()
            server = await self.server()
            for script in Script:
                sha = await self._client.execute_command("SCRIPT LOAD", script.source, target_nodes=_PRIMARIES)
                self._shas[script] = text_of(sha)
            await self._channel.subscribe(channel)
        return server

    async def server(self) -> Server:
        """Return all primaries as one: any other one among them is another server."""
        with failures(self.name):
            found = (await self._ask_all("INFO", "server")).values()
            for memory in (await self._ask_all("INFO", "memory")).values():
                check_memory(self.name, memory)
        run_ids = sorted(str(info["run_id"]) for info in found)
        return Server(",".join(run_ids), min(float(str(info["uptime_in_seconds"])) for info in found))

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        """Run scripts, those of each key in order."""
        places: dict[str, list[int]] = {}
        for place, call in enumerate(calls):
            places.setdefault(call.key, []).append(place)
        replies: dict[int, Reply | Exception] = {}

        async def run_in_order(of_key: list[int]) -> None:
            for place in of_key:
                replies[place] = await self._run(calls[place])

        ended = await asyncio.gather(*map(run_in_order, places.values()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        return [replies[place] for place in range(len(calls))]

    def pushes(self) -> AsyncIterator[str]:
        """Return what is published to the channel."""
        return self._channel.pushes(self.name)

    def clock_of(self, key: str, /) -> int:
        """Return a number for the clock that rules a key: that of its slot, which may move to another node."""
        return self._client.keyslot(key)

    def probe_keys(self, key: str, /) -> list[str]:
        """Return a key for each node that has keys."""
        found: dict[str, str] = {}
        for number in range(_MOST_PROBES):
            candidate = f"{key}:{number}"
            node = self._client.get_node_from_key(candidate)
            if node is not None:
                found.setdefault(node.name, candidate)
        return list(found.values())

    async def drop(self) -> None:
        """Close the connections; raises WireLost if one cannot be closed in time."""
        with failures(self.name):
            await self._channel.drop()
            await self._client.aclose()
            # It closes nothing while it is not initialized, as after the loss of a node; but calls to other nodes that
            # were under way at the loss may have connected since.
            for nodes in ("nodes_cache", "startup_nodes"):
                await self._client.nodes_manager.aclose(nodes)

    async def aclose(self) -> None:
        """Close the client."""
        await self.drop()

    async def _run(self, call: ScriptCall) -> Reply | Exception:
        with failures(self.name):
            try:
                try:
                    reply = await self._evaluate(call, "EVALSHA", self._shas[call.script])
                except NoScriptError:  # a node that is new, or has forgotten it
                    reply = await self._evaluate(call, "EVAL", call.script.source)
                return [text_of(word) for word in reply]
            except ResponseError as error:
                return of_script(self.name, error)

    async def _evaluate(self, call: ScriptCall, command: str, script: str) -> list[object]:
        words: list[object] = await self._client.execute_command(command, script, 1, call.key, *call.args)
        return words

    async def _ask_all(self, *words: str) -> dict[str, dict[str, object]]:
        """Return what each primary answers, by its name."""
        found: dict[str, dict[str, object]] = await self._client.execute_command(*words, target_nodes=_PRIMARIES)
        return found
