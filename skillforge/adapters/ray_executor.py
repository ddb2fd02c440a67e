"""The Ray executor: attempts performed by other processes, of this machine or of a cluster.

How many run at once, and what becomes of errors and cancellation, is the business of the executor
underneath, which runs in this process, the driver. This one only says where an attempt is
performed: by one of a few Ray actors, each a process that performs many attempts at once, for they
mostly wait for models. Ledger, budget and progress stay with the driver; what travels is the
attempt, its item and its result, all pickled.

**When a process dies** (killed, out of memory, its node gone) Ray reports every attempt that has
not come back. A new process takes its place, and each attempt of the dead one raises `InfraError`
in the driver, which may send it again: alone then, in a process of its own, so that an attempt that
kills its process takes no other with it twice. Ray itself repeats nothing, because an attempt may
be paid for: only the driver knows whether the budget allows another one.

**Trust and confinement.** Processes run with the rights of whoever started the cluster, as code of
a suite runs with the rights of the driver without Ray. Only a driver that has found a suite trusted
sends anything, and functions of suites take the code along that it has found trusted. What programs
of ``command`` workers and of verifiers may do is limited in each process as it is in the driver
(`skillforge.adapters.limited`). Keys do not travel: nodes of a cluster that stands already need
them in the environment it was started with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Protocol, TypeVar

from skillforge.errors import ConfigError, InfraError
from skillforge.ports import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")
Landed = TypeVar("Landed")

STORE = 256 << 20
"""Bytes of shared memory of a cluster that is started here; what is sent is small."""
STARTS = 3
"""Times that a cluster, or a process of one, is started before it is given up."""
PATIENCE = 10.0
"""Seconds for the head of a cluster to accept a connection."""


class Send(Protocol):
    """Has an item's attempt performed by another process."""

    async def __call__(self, item: Any, *, alone: bool = False) -> Any:
        """Return its result.

        Args:
            item: What the attempt is given.
            alone: Whether to use a process of its own, which ends with it.

        Raises:
            InfraError: The process has died; nobody knows how far the attempt came.
        """


async def only_send(item: Any, send: Send) -> Any:
    """Do nothing in the driver but send; a process that dies is an error like any other."""
    return await send(item)


class RayExecutor:
    """Runs attempts in Ray processes, as the `Executor` port.

    Args:
        local: Runs what the driver does for each item; its limit is that of attempts in flight.
        processes: How many processes share the attempts, ≥ 1.
        address: ``HOST:PORT`` of a cluster that stands, ``auto`` for the one of this machine; None
            starts one here, which `close` shuts down. A process that is connected to a cluster
            already stays with that.
        driver: What this process does for each item: at least send it.

    Raises:
        ConfigError: Ray is not installed, or nobody listens at the address.
    """

    def __init__(
        self,
        local: Executor,
        *,
        processes: int,
        address: str | None = None,
        driver: Callable[[Any, Send], Awaitable[Any]] = only_send,
    ) -> None:
        self._ray = _load_ray()
        if address is not None and not self._ray.is_initialized():
            _require_listener(address)
        self._local, self._driver = local, driver
        self._processes, self._address = min(processes, local.limit), address
        self._hosts: list[_Host] = []
        self._turn = count()
        self._open = ExitStack()

    @property
    def limit(self) -> int:
        """Most attempts in flight at once."""
        return self._local.limit

    def run(
        self,
        attempt: Callable[[Item], Awaitable[Result]],
        items: Iterator[Item],
        land: Callable[[int, Result], Landed],
    ) -> AsyncGenerator[list[Landed], None]:
        """Yield what has arrived; see `skillforge.ports.Executor` for the contract.

        Raises:
            ConfigError: No cluster answers at the address.
        """
        if not self._hosts:
            self._start()
        data = self._ray.put(self._ray.cloudpickle.dumps(attempt))
        send = partial(self._send, data, asyncio.Semaphore(self._processes))
        return self._local.run(lambda item: self._driver(item, send), items, land)

    def close(self) -> None:
        """End the processes, and the cluster if it was started here; running anew starts anew."""
        self._open.close()

    def _start(self) -> None:
        """Connect, and start the processes; until `close`, Ray's own words go to stderr."""
        with ExitStack() as opening:
            opening.enter_context(redirect_stdout(sys.stderr))
            if not self._ray.is_initialized():
                opening.callback(self._ray.shutdown)  # leaves alone what it has not started
                connect(self._address, self._processes)
            opening.callback(self._end_processes)
            self._hosts = [_Host(self._new_process()) for _ in range(self._processes)]
            self._open = opening.pop_all()

    def _end_processes(self) -> None:
        for host in self._hosts:
            self._ray.kill(host.process)
        self._hosts = []

    def _new_process(self) -> Any:
        """Start one where a processor is free, and then occupy none: it waits for models."""
        actor, place = self._ray.remote(_Performer), self._next_place()
        return actor.options(scheduling_strategy=place, max_concurrency=self.limit).remote()

    def _next_place(self) -> Any:
        """Return the next living node in turn, or another one if that turns out full or dead.

        Ray's own ``SPREAD`` may put all processes on one node, with which all would be lost.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        if not nodes:  # the cluster grows on demand
            return "SPREAD"
        node = nodes[next(self._turn) % len(nodes)]["NodeID"]
        return NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)

    async def _send(
        self, data: Any, lone: asyncio.Semaphore, item: Any, *, alone: bool = False
    ) -> Any:
        if alone:
            async with lone:
                return await self._send_to(_Host(self._new_process()), data, item)
        return await self._send_to(min(self._hosts, key=lambda host: host.load), data, item)

    async def _send_to(self, host: _Host, data: Any, item: Any) -> Any:
        host.load += 1
        try:
            return await self._perform(await self._living_process(host), data, item)
        finally:
            host.load -= 1

    async def _living_process(self, host: _Host) -> Any:
        """Return a process that has answered just now, a new one where the former is dead.

        A node that dies is taken for living for up to half a minute, and what is put there then
        never starts: nothing is sent to it, so nothing is lost with it.
        """
        said = ""
        for _ in range(STARTS):
            process = host.process
            try:
                await process.answer.remote()
                return process
            except self._ray.exceptions.RayError as error:
                said = _said(error)
                if host.process is process:  # the first of its attempts to notice
                    host.process = self._new_process()
        raise InfraError(f"no process starts that could perform it: {said}")

    async def _perform(self, process: Any, data: Any, item: Any) -> Any:
        """Have a process perform an attempt; what it raises there is raised here."""
        failures = self._ray.exceptions
        result = process.perform.remote(data, item)
        try:
            return await result
        except asyncio.CancelledError:
            self._ray.cancel(result)
            raise
        except failures.RayTaskError as error:
            raise error.cause from error
        except failures.RayError as error:
            raise InfraError(f"the process that performed it was lost: {_said(error)}") from error


@dataclass(slots=True)
class _Host:
    """A place for one process, and for the next one where that has died."""

    process: Any
    load: int = 0
    """Attempts in flight there."""


class _Performer:
    """What a process is: it performs attempts in one event loop, at the same time."""

    async def answer(self) -> None:
        """Show that the process lives."""

    async def perform(self, data: bytes, item: Any) -> Any:
        """Perform an attempt."""
        return await _loaded(data)(item)


@lru_cache(maxsize=4)
def _loaded(data: bytes) -> Callable[[Any], Awaitable[Any]]:
    """Return an attempt, which keeps what its items share: clients, pace, imported functions."""
    loaded: Callable[[Any], Awaitable[Any]] = _load_ray().cloudpickle.loads(data)
    return loaded


def _load_ray() -> Any:
    """Import Ray, which from here on tells nobody that it is used."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(
            f"executor 'ray': Ray cannot be imported ({error}); install it with "
            "`pip install 'skillforge-evolve[ray]'`, or use the executor 'asyncio'"
        ) from error
    return ray


def connect(address: str | None, processes: int) -> None:
    """Connect to a cluster, or start one without dashboard on this machine.

    Ray gives a new node thirty seconds to come up, which a busy machine may need: it is started
    anew then.

    Raises:
        ConfigError: There is none at the address, or none can be started.
    """
    ray = _load_ray()
    own = {"num_cpus": processes, "object_store_memory": STORE, "include_dashboard": False}
    settings = own if address is None else {}
    for left in reversed(range(1 if address else STARTS)):
        try:
            ray.init(
                address or "local", log_to_driver=False, logging_level=logging.ERROR, **settings
            )
            return
        except Exception as error:  # a node that comes too late raises just that
            ray.shutdown()
            if not left:
                raise ConfigError(_not_connected(address, error)) from error


def _require_listener(address: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would try it for many minutes.

    Raises:
        ConfigError: It is no address of a cluster, or nobody listens there.
    """
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") or not host or not port.isdigit():
        raise ConfigError(
            f"Ray address {address!r}; expected HOST:PORT of the cluster itself, which `ray start "
            "--head` prints (its port is 6379 unless told otherwise; not that of Ray Client), or "
            "'auto' for the cluster of this machine, which must be one of its nodes: "
            "`ray start --address=HOST:PORT` makes it one"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(_not_connected(address, error)) from error


def _not_connected(address: str | None, error: Exception) -> str:
    said = _said(error)
    if address is None:
        return f"Ray cannot start on this machine: {said}"
    return (
        f"no Ray cluster answers at {address!r} ({said}): start one with `ray start --head`, or "
        "leave the address out to start one for the command"
    )


def _said(error: Exception) -> str:
    """Return the beginning of what Ray says, on one line."""
    return " ".join(str(error).split())[:300]
