"""What the workflows need from the outside world, as protocols.

Adapters implement these; the command line chooses which; tests pass small real objects. A port's
docstring is its contract, and `tests/contract/` runs every implementation through it.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from skillforge.core.chat import ChatReply, ChatRequest, Cost
from skillforge.core.events import Event, NewEvent
from skillforge.core.package import Package
from skillforge.core.program import Finished, Program
from skillforge.core.rollout import Attempt, Verdict
from skillforge.core.task import Task

Item = TypeVar("Item", contravariant=True)
Result = TypeVar("Result", covariant=True)
Landed = TypeVar("Landed", covariant=True)


class ChatModel(Protocol):
    """A chat model behind any provider.

    ``complete`` raises `skillforge.core.chat.CallFailed` and nothing else where a call brings no
    answer: with kind ``infra`` if nothing was learnt about the task (connection, 429, 5xx,
    malformed or empty-choices reply), with kind ``agent`` if this request cannot be served
    (context overflow, timeout of the task). The error also says whether another attempt is worth
    making and what this one may have cost. A wrong key or an unknown model is a `ConfigError`.
    It never returns an error as text, and it never caches.
    """

    @property
    def name(self) -> str:
        """The litellm model name, or ``local/…``."""

    @property
    def fingerprint(self) -> str:
        """Identity of the weights or endpoint, for rollout keys."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return one completion."""

    def cost_bound(self, request: ChatRequest) -> float:
        """Return an upper bound of the USD that one attempt can cost, ≥ 0.

        Raises:
            ConfigError: The price of the model is unknown.
        """

    def token_bound(self, request: ChatRequest) -> int:
        """Return an upper bound of prompt plus completion tokens of one attempt."""


class Worker(Protocol):
    """What performs a task with given skills."""

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the most that one attempt can cost, without retries.

        Raises:
            ConfigError: A price is unknown.
        """

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once. A failure is part of the attempt, never an exception.

        Its cost is what is booked, also 0; where nobody tells, it is at most the bound, and
        ``cost_told`` is false.
        """


class Verifier(Protocol):
    """Scores what a worker brought back.

    An answer that it rejects is score 0. A verifier that dies, times out, says nothing or gives
    what is no score in [0, 1] is a verdict with a failure of kind ``infra``, never an exception.
    """

    async def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Score one attempt at a task."""


class Programs(Protocol):
    """Runs programs of others: no shell, a fresh folder, limits, and nothing left afterwards."""

    def identity(self, name: str) -> str:
        """Return a digest of the program that a name means here; "" where there is none."""

    async def run(self, program: Program) -> Finished:
        """Run a program to its end, or until it passes a limit.

        Raises:
            ConfigError: There is no such program, or no folder to run it in.
        """


class Ledger(Protocol):
    """The append-only, hash-chained event store with its blobs.

    ``append`` is atomic and durable when it returns: all of the events or none. Events are never
    changed or deleted; blobs can be erased by hash without breaking the chain.
    """

    def append(self, events: Sequence[NewEvent]) -> tuple[Event, ...]:
        """Chain and store the events; return them with their sequence numbers and hashes."""

    def record(self, events: Sequence[NewEvent], *, blobs: Sequence[bytes]) -> None:
        """Store events together with the blobs that they name: all of them or none."""

    @property
    def head(self) -> int:
        """Number of the last event; 0 where there is none."""

    def events(
        self,
        *,
        after: int = 0,
        kinds: Sequence[str] | None = None,
        run: str | None = None,
        about: Sequence[str] | None = None,
    ) -> Iterable[Event]:
        """Yield the events with ``seq > after`` in order, narrowed by what is named.

        Args:
            after: Sequence number to start behind.
            kinds: Only these kinds.
            run: Only this run.
            about: Only events whose ``candidate``, or else ``subject``, is one of these; takes
                time in proportion to them, however many others there are.
        """

    def find_rollouts(self, keys: Sequence[str]) -> Mapping[str, Event]:
        """Return the uncorrupted rollouts of those keys that stand, by key.

        Those are the finished ones, and the failures that `core.records.reusable_key` names.
        """

    def put_blob(self, data: bytes) -> str:
        """Store bytes under their SHA-256 and return it. Storing twice is the same as once."""

    def get_blob(self, digest: str) -> bytes:
        """Return the bytes stored under a hash.

        Raises:
            BlobErased: They were erased on purpose.
            LedgerError: Nothing is stored under it, or what is there is damaged.
        """

    def damaged_blobs(self) -> Iterable[str]:
        """Say of each blob that cannot be read, though nobody erased it, what is wrong."""

    def erase(self, digests: Sequence[str], *, reason: str) -> None:
        """Erase blobs for good and write down that and why; the chain stays intact.

        Without any, only what an erasing before has left to do is done.

        Raises:
            LedgerError: Nothing is stored under one of the hashes; then nothing is erased.
        """

    def load_checkpoint(self) -> tuple[Event, bytes] | None:
        """Return the event at which the last checkpoint was made and what was kept there.

        None where there is none, or where it does not stand at the event it was made at.
        """

    def save_checkpoint(self, event: Event, data: bytes) -> None:
        """Keep bytes that follow from the events up to one; a cache, outside the chain."""


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def fingerprint(self) -> str:
        """Identity of the model and its weights."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text, shape (n, dim), each of length 1."""


class VectorIndex(Protocol):
    """Nearest neighbours by inner product."""

    def search(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and row numbers, each of shape (n_queries, min(k, size)), best first."""


class Executor(Protocol):
    """Runs attempts concurrently, bounded, and hands back results as they come.

    What an attempt is given may run in another process: both are data that can be pickled. If an
    attempt or the iterator of items raises, no new attempt is started, those in flight are
    finished and yielded, and the first error is raised then: work that is already paid for is
    never thrown away. A run that is cancelled drops what is in flight.
    """

    @property
    def limit(self) -> int:
        """Most attempts in flight at once."""

    def run(
        self,
        attempt: Callable[[Item], Awaitable[Result]],
        items: Iterator[Item],
        land: Callable[[int, Result], Landed],
    ) -> AsyncGenerator[list[Landed], None]:
        """Yield what has arrived since last time, in order of completion.

        An item is pulled when there is room for its attempt. ``land`` is called here as soon as a
        result arrives, with the position of its item, and what it returns is yielded. Nothing is
        held back: one result is enough for a batch.
        """


class Library(Protocol):
    """The user's folder of skill packages."""

    @property
    def passed_over(self) -> Mapping[str, str]:
        """What `versions` left out, by folder, with the reason: unreadable, or a name again."""

    def read(self, name: str) -> Package | None:
        """Return the package that the folder holds under that name, or None."""

    def versions(self) -> Mapping[str, str]:
        """Return the version of every loadable package by name, sorted by name."""

    def write(self, package: Package, *, ready: Callable[[], object] = ...) -> None:
        """Replace the folder of that package, all of it or nothing.

        ``ready`` is called when no disk can refuse any more: what it raises ends the write.
        """

    def remove(self, name: str, *, ready: Callable[[], object] = ...) -> None:
        """Remove the folder of that skill, all of it or nothing; ``ready`` as in `write`."""


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Seconds since the epoch."""
