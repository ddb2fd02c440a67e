"""One completion of the embedded model, as it arrives from llama.cpp's server."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any


class ContextOverflowError(Exception):
    """The prompt does not fit into the context of a slot."""


class CallTimeoutError(Exception):
    """The answer was not complete within the timeout of the request."""


@dataclass(slots=True, kw_only=True)
class Answer:
    """Gathers the chunks of one streamed completion; streaming is what makes it stoppable."""

    timeout: float
    """Seconds that it may take once its slot has taken it up."""
    stop: threading.Event
    deadline: float = inf
    parts: list[str] = field(default_factory=list)
    finish_reason: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    late: bool = False

    def begin(self) -> None:
        """Start the clock."""
        self.deadline = time.monotonic() + self.timeout

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Add one chunk; return True to stop the generation."""
        if "error" in chunk:
            self.error = chunk["error"]
            return True
        for choice in chunk.get("choices") or ():
            self.parts.append(choice.get("delta", {}).get("content") or "")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.usage = chunk.get("usage") or self.usage
        self.late = not self.finish_reason and time.monotonic() > self.deadline
        return self.late or self.stop.is_set()

    def result(self) -> dict[str, Any]:
        """Return text, finish reason and usage, or raise what went wrong."""
        if self.error is not None:
            message = str(self.error.get("message", self.error))
            if self.error.get("type") == "exceed_context_size_error":
                raise ContextOverflowError(message)
            raise RuntimeError(message)
        if self.late:
            raise CallTimeoutError(f"no complete answer within {self.timeout:g} s")
        if not self.finish_reason:
            raise RuntimeError("the call was stopped before the answer was complete")
        return {
            "text": "".join(self.parts),
            "finish_reason": self.finish_reason,
            "prompt_tokens": int(self.usage.get("prompt_tokens", 0)),
            "completion_tokens": int(self.usage.get("completion_tokens", 0)),
        }
