"""The peer door: where other instances reach this one."""

from __future__ import annotations

from typing import Any

import grpc

from api.peer_link import SERVER_OPTIONS, peer_handler
from cluster.peers import Peers
from querator.errors import RequestFailed

_UNIX = "unix:"
_OPTIONS = (*SERVER_OPTIONS, ("grpc.so_reuseport", 0))  # or else a second instance would take half of the links


class PeerDoor:
    """`start`, then `stop`; close the peers first, since nobody else ends their links."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._server: Any = None

    async def start(self, address: str) -> str:
        """Listen at HOST:PORT or unix:PATH; gives the address that was bound (port 0 is any free one)."""
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((peer_handler(self._peers),))
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:
            await server.stop(None)
            details = f"{address} is taken, or is no address of this machine"
            raise RequestFailed("cluster.listen cannot be used", details) from None
        await server.start()
        self._server = server
        return address if address.startswith(_UNIX) else f"{address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        """May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
