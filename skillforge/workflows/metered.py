"""Models and workers whose every call passes the budget first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Task
from skillforge.errors import SkillforgeError
from skillforge.ports import ChatModel, Worker
from skillforge.workflows.meter import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredModel:
    """A chat model whose every call passes the budget first."""

    model: ChatModel
    meter: Meter
    role: str = "worker"
    """What the calls are for: ``worker``, ``proposer``, ``judge``."""

    @property
    def name(self) -> str:
        """Name of the model underneath."""
        return self.model.name

    @property
    def fingerprint(self) -> str:
        """Identity of the model underneath."""
        return self.model.fingerprint

    def cost_bound(self, request: ChatRequest) -> float:
        """Upper bound of USD for one attempt."""
        return self.model.cost_bound(request)

    def token_bound(self, request: ChatRequest) -> int:
        """Upper bound of tokens for one attempt."""
        return self.model.token_bound(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Reserve, call, book.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
        """
        bound = Cost(usd=self.cost_bound(request), tokens=self.token_bound(request))
        async with self.meter.reserve(self.role, bound) as call:
            try:
                reply = await self.model.complete(request)
            except CallFailed as error:
                call.cost, call.told = error.cost, error.cost == Cost()
                raise
            except SkillforgeError:  # a wrong key or name: nothing was served
                call.cost = Cost()
                raise
            call.cost, call.told = reply.cost, reply.cost_told
            return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredWorker:
    """A worker whose every attempt passes the budget first, as one call.

    For workers whose model calls cannot be seen from here (`command`, `python`) and for attempts
    that run on other machines; its calls must then not pass the same meter once more.
    """

    worker: Worker
    meter: Meter

    @property
    def fingerprint(self) -> str:
        """Identity of the worker underneath."""
        return self.worker.fingerprint

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """The most that one attempt can cost."""
        return self.worker.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Reserve, try, book.

        Raises:
            BudgetSpent: With this attempt, the caps could be passed.
            ConfigError: It cost more than its bound, so that a cap does not hold.
        """
        async with self.meter.reserve("worker", self.bound(task, skills)) as call:
            attempt = await self.worker.attempt(task, skills, seed=seed)
            call.take(attempt)
            return attempt
