"""Ports for programs that cannot be given port 0."""

import random
import socket
import threading

# Each with the name that stands for it.
_drawn: dict[int, socket.socket] = {}
_drawing = threading.Lock()


def free_port() -> int:
    """A port that nobody has now, below those that the kernel gives to connections. No other test gets it while this process lives, in
    whatever language it is written: a name in the abstract namespace stands for it, as in tests/support/redis_server.rs."""
    with _drawing:
        for port in random.sample(range(12_000, 32_000), 10_000):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0tollgate-tests-port-{port}")
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                claim.close()
                continue
            _drawn[port] = claim
            return port
    raise RuntimeError("no port is free")
