"""A worker that does not pay per model call, under the budget all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillforge.core.chat import ChatReply, Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Task
from skillforge.ports import Worker
from skillforge.workflows.meter import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredWorker:
    """Reserves the most that an attempt can cost, then books what it says it has cost."""

    worker: Worker
    meter: Meter

    @property
    def fingerprint(self) -> str:
        """Identity of the worker underneath."""
        return self.worker.fingerprint

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the bound of the worker underneath."""
        return self.worker.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Reserve, try, book.

        Raises:
            BudgetSpent: With this attempt, the caps could be passed.
            ConfigError: Nobody says what an attempt costs.
        """
        most = self.bound(task, skills)
        with self.meter.reserve(usd=most.usd, tokens=most.tokens) as spent:
            attempt = await self.worker.attempt(task, skills, seed=seed)
            spent.append(
                ChatReply(
                    text="",
                    finish_reason=attempt.finish_reason,
                    prompt_tokens=attempt.prompt_tokens,
                    completion_tokens=attempt.completion_tokens,
                    cost_usd=attempt.cost_usd,
                    seconds=attempt.seconds,
                )
            )
            return attempt
