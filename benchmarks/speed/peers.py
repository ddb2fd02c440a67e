"""What others do with the same tasks: dspy and gepa at once, litellm with a model that takes time.

Each function returns the seconds that its peer took, start-up and imports not counted, and raises
`ImportError` where the peer is not installed (``pip install '.[bench]'``).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from skillforge.core.task import Task


def dspy_seconds(tasks: Sequence[Task]) -> float:
    """Run dspy.Evaluate over the tasks with a program that answers at once."""
    import dspy

    class Program(dspy.Module):
        def forward(self, question: str, answer: str) -> Any:
            return dspy.Prediction(answer=answer)

    examples = [
        dspy.Example(question=t.input, answer=t.expected).with_inputs("question", "answer")
        for t in tasks
    ]
    evaluate = dspy.Evaluate(
        devset=examples,
        metric=lambda example, prediction, trace=None: float(example.answer == prediction.answer),
        num_threads=os.cpu_count(),
    )
    started = time.perf_counter()
    result = evaluate(Program())
    assert result.score == 100
    return time.perf_counter() - started


def gepa_seconds(tasks: Sequence[Task]) -> float:
    """Run gepa's default adapter over the tasks in minibatches, with trajectories."""
    from gepa.adapters.default_adapter.default_adapter import DefaultAdapter

    answers = {task.input: task.expected or "" for task in tasks}
    adapter = DefaultAdapter(model=lambda messages: answers[messages[-1]["content"]])
    data = [{"input": t.input, "additional_context": {}, "answer": t.expected} for t in tasks]
    started = time.perf_counter()
    scores: list[float] = []
    for at in range(0, len(data), 64):
        batch = adapter.evaluate(data[at : at + 64], {"prompt": "Answer."}, capture_traces=True)
        scores += batch.scores
    assert sum(scores) == len(tasks)
    return time.perf_counter() - started


def litellm_seconds(tasks: Sequence[Task], url: str, in_flight: int) -> float:
    """Ask a model for each task through litellm alone, so many calls in flight; keep nothing."""
    from skillforge.adapters.models import load_litellm

    litellm = load_litellm()

    async def lane(left: Any) -> None:
        for task in left:
            reply = await litellm.acompletion(
                model="openai/loopback",
                api_base=url,
                api_key="none",
                messages=[{"role": "user", "content": task.input}],
                max_tokens=64,
                max_retries=0,
            )
            assert reply.choices[0].message.content

    async def everything() -> float:
        await lane(iter(tasks[:1]))  # it imports parts of itself at the first call
        left = iter(tasks)
        started = time.perf_counter()
        await asyncio.gather(*[lane(left) for _ in range(in_flight)])
        return time.perf_counter() - started

    return asyncio.run(everything())
