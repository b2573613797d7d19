"""Connections of clients: how many there may be at once, and how long each may take to ask.

A client that connects and says nothing, or says it byte by byte, costs a file descriptor and perhaps a
thread. The work of this process needs descriptors, too: for its databases, the lake and Spark. So each
listener keeps a table of its connections, which holds a small part of the descriptors that the system allows.
When the table is full, the client that has been asking for longest is closed: a client that sends its request
at once gets its answer, however many others do not.

Source: slow clients are recognised by a deadline for the whole request, not by pauses (RFC 9110 §15.5.9).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

MOST_CONNECTIONS = 128
REQUEST_SECONDS = 10.0
"""How long a client may take for the whole of a request, from its first moment to the last byte."""
_SHARE = 8
"""Each table takes this part of the descriptors at most."""
_FEWEST = 4

T = TypeVar("T", bound=Hashable)


def most_connections(wanted: int = MOST_CONNECTIONS) -> int:
    """As many connections as are wanted, or fewer where the system allows few descriptors."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return max(_FEWEST, min(wanted, allowed // _SHARE))


class OpenConnections(Generic[T]):
    """The connections of one listener; threads may use it at once.

    `end` closes a connection from outside, whatever another thread is doing with it. It must not wait.
    """

    def __init__(self, most: int, end: Callable[[T], None], request_seconds: float = REQUEST_SECONDS) -> None:
        self.most = most
        self._end = end
        self._request_seconds = request_seconds
        self._lock = Lock()
        self._asking: dict[T, float] = {}
        self._answered: set[T] = set()

    def __len__(self) -> int:
        return len(self._asking) + len(self._answered)

    def add(self, connection: T) -> bool:
        """Adds a new connection, in the place of another one if necessary; False if there is no room."""
        with self._lock:
            oldest: T | None = None
            if len(self) >= self.most:
                oldest = next(iter(self._asking), None)
                if oldest is None:
                    return False
                del self._asking[oldest]
            self._asking[connection] = time.monotonic()
        if oldest is not None:
            self._end(oldest)
        return True

    def asked(self, connection: T) -> None:
        """Its request is complete: the client's deadline no longer applies."""
        with self._lock:
            if self._asking.pop(connection, None) is not None:
                self._answered.add(connection)

    def asks_again(self, connection: T) -> None:
        """It has its answer and may send another request."""
        with self._lock:
            if connection in self._answered:
                self._answered.discard(connection)
                self._asking[connection] = time.monotonic()

    def remove(self, connection: T) -> None:
        """Takes a closed connection out of the table."""
        with self._lock:
            self._asking.pop(connection, None)
            self._answered.discard(connection)

    def end_overdue(self) -> None:
        """Closes connections that have taken too long to ask; to be called periodically."""
        late = time.monotonic() - self._request_seconds
        with self._lock:
            overdue = [each for each, since in self._asking.items() if since < late]
            for each in overdue:
                del self._asking[each]
        for each in overdue:
            self._end(each)
