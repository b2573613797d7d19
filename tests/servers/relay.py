"""A relay before a server, as a network is that fails: it cuts connections, or lets nothing through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Forwards what arrives at its own port; threads may change what it does."""

    def __init__(self, port: int) -> None:
        """`port` is the server's, on this machine."""
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._forwards = threading.Event()
        self._forwards.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.watch: Callable[[bytes], str] = lambda _: ""
        """Given what a client sends: "before" cuts its connection first, "after" once it is forwarded."""
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self, url: str) -> str:
        """The address of a database, by way of the relay."""
        return url.replace(f":{self._server}/", f":{self.port}/")

    def freeze(self) -> None:
        """Nothing arrives any more, and nobody is told, as when a cable was pulled."""
        self._forwards.clear()

    def cut(self) -> None:
        """Ends all connections, and forwards again what new ones send."""
        for pair in self._pairs:
            _end(pair)
        self._pairs.clear()
        self._forwards.set()

    def close(self) -> None:
        """Ends everything."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                return
            pair = (client, server)
            self._pairs.append(pair)
            for one, other in (pair, (server, client)):
                threading.Thread(target=self._forward, args=(one, other, pair), daemon=True).start()

    def _forward(
        self, one: socket.socket, other: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        with suppress(OSError):
            while sent := one.recv(1 << 16):
                self._forwards.wait()
                when = self.watch(sent) if one is pair[0] else ""
                if when == "before":
                    break
                if when == "after":
                    # The answer to it must not come through.
                    pair[0].shutdown(socket.SHUT_RDWR)
                other.sendall(sent)
                if when:
                    return
        _end(pair)


@contextmanager
def relayed(port: int) -> Iterator[Relay]:
    """A relay to a server's port while the context lasts."""
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
