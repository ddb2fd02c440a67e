"""A model that takes a fixed time, as a process of its own: it answers any number of calls at once.

It speaks as much HTTP and OpenAI's chat protocol as clients need, over kept connections.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LATENCY = 0.1
"""Seconds that every answer takes."""
ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "loopback",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "yes"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 1, "total_tokens": 41},
    }
).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ANSWER),
    ANSWER,
)


class Connection(asyncio.Protocol):
    """Answers each whole request, after the latency."""

    def connection_made(self, transport: Any) -> None:
        """Keep the way back."""
        self.transport, self.unread = transport, b""

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self.unread += data
        head, end, body = self.unread.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().partition(b"content-length:")[2].split()[0]):
            self.unread = b""
            asyncio.get_running_loop().call_later(LATENCY, self.transport.write, REPLY)


@contextmanager
def slow_model() -> Iterator[int]:
    """Run the model; its port on loopback."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def serve() -> None:
    """Answer until killed."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
