"""Progress: numbers that are right, a bar on a terminal, plain lines in a pipe."""

import itertools
import re
import sys

import pytest
from support import batch

from skillforge.cli.progress import Progress
from skillforge.core.rollout import Failure, FailureKind, Rollout


def rollouts(tmp_path, progress, count=30):
    """Run a batch under a progress."""
    batch.run(
        tmp_path / "ledger.db", count, on_rollout=progress.rollout, on_expected=progress.expect
    )
    return progress


def test_the_line_tells_rate_cost_failures_and_time_left(tmp_path):
    """All that was asked for and all that has finished is counted."""
    progress = rollouts(tmp_path, Progress(terminal=False))
    progress.expect(10)
    line = progress.line()

    assert line.startswith("30 of 40 rollouts, ")
    for word in ("/s, ", "$0.00", "0 failed", " left"):
        assert word in line


def test_the_clock_starts_with_the_first_rollout(tmp_path):
    """What came before it counts neither for the rate nor for the time left."""
    at = 0.0
    progress = Progress(terminal=False, clock=lambda: at)
    at = 100.0
    progress.expect(0)
    at = 200.0
    progress.expect(40)
    at = 215.0
    line = rollouts(tmp_path, progress).line()

    assert line.startswith("30 of 70 rollouts, 2.0/s, ")
    assert line.endswith("0:00:20 left")


def every(seconds):
    """Return a clock that goes on by so much with every look at it."""
    return itertools.count(0.0, seconds).__next__


def test_a_pipe_gets_plain_lines(tmp_path, capsys):
    """No control character is written, one line at a time, now and then."""
    progress = rollouts(tmp_path, Progress(terminal=False, clock=every(1.0)))
    progress.announce("next: [bold]shout[/]")
    out, err = capsys.readouterr()

    assert out == ""
    assert "\r" not in err
    assert "\x1b" not in err
    assert err.splitlines()[-1].endswith("next: [bold]shout[/]")
    assert "rollouts" in err.splitlines()[0]


def test_the_first_failure_is_named_once(capsys):
    """A worker that fails at every task says why while it can still be stopped."""
    progress = Progress(terminal=False)
    failure = Failure(kind=FailureKind.AGENT, message="work:work:\nTypeError", where="worker")
    failed = Rollout(
        key="k",
        task="t/1",
        family="t",
        arm="base",
        subject="",
        replicate=0,
        score=0.0,
        output_blob="",
        purpose="eval",
        parallel=1,
        failure=failure,
        finish_reason="",
        prompt_tokens=0,
        completion_tokens=0,
        cost_usd=0.0,
        seconds=0.0,
    )
    progress.rollout(failed)
    progress.rollout(failed)

    assert capsys.readouterr().err.count("the first failure, of t/1: work:work: TypeError\n") == 1
    assert "2 failed" in progress.line()


def test_a_terminal_gets_a_bar_that_goes_away(tmp_path, capsys, monkeypatch):
    """The bar is drawn on stderr and taken away before the result is printed."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress = rollouts(tmp_path, Progress(terminal=True, clock=every(0.1)))
    progress.announce("half way")
    print("a note", file=sys.stderr)
    progress.finish()
    out, err = capsys.readouterr()

    assert out == ""
    assert "━" in err
    assert "of 30 rollouts" in err
    for line in ("half way", "a note"):
        assert f"{line}\n" in err
    assert err.endswith("\x1b[2K")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_numbers_stay_on_one_line(tmp_path, capsys, monkeypatch, width):
    """However narrow the terminal is, nothing wraps; where it is, the bar makes room for them."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    progress = Progress(terminal=True, clock=every(0.1))
    progress.expect(12_345)
    rollouts(tmp_path, progress).finish()
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    lines = [line.rstrip() for line in re.split(r"[\r\n]", drawn) if line.strip()]

    assert lines
    assert max(map(len, lines)) <= width
    assert ("━" in drawn) == (width >= 80)
    assert all(line.endswith(" left") for line in lines) == (width >= 60)


def test_nothing_is_told_of_a_single_rollout(tmp_path, capsys):
    """While the others of the first round are in flight, a rate would be far too low."""
    at = 0.0
    progress = Progress(terminal=False, clock=lambda: at)
    progress.expect(400)
    at = 5.0
    rollouts(tmp_path, progress, count=1)
    early = capsys.readouterr().err
    at = 10.0
    rollouts(tmp_path, progress, count=20)

    assert early == ""
    assert capsys.readouterr().err.splitlines()[0].startswith("[   10 s] 2 of 420 rollouts, 0.2/s")

    progress.finish()
    progress.finish()  # the last numbers are told once
    assert capsys.readouterr().err.count(" of 420 rollouts") == 1


def test_a_cached_batch_is_not_waited_for(tmp_path):
    """What is reused is no rollout to come."""
    rollouts(tmp_path, Progress(terminal=False))
    again = rollouts(tmp_path, Progress(terminal=False))

    assert again.line().startswith("0 of 0 rollouts")
