"""`power` and `calibrate`: planning a study, and measuring how often a worker disagrees."""

import pytest
from support.loopback import LoopbackServer, ok
from support.small_project import events, write_project


def test_power_plans_a_study(processes, tmp_path):
    """Fixed size and gate are planned side by side, under the names that tools rely on."""
    done = processes.run("power", "--effect", "0.2", "--discordance", "0.3", "--json", cwd=tmp_path)

    assert done.code == 0, done.stderr
    assert (done.json["pairs"], done.json["alpha"], done.json["power"]) == (45, 0.05, 0.8)
    taken = done.json["pairs_sequential"]
    assert 38 <= taken["median"] <= 48 <= 66 <= taken["p80"] <= 80
    assert done.json["mde"] == pytest.approx(0.2, abs=0.005)
    assert 0.22 < done.json["mde_sequential"] < 0.28
    assert done.json["designs"] == []


def test_power_says_what_replicates_would_save(processes, tmp_path):
    """With the flip rate of a worker, tasks and rollouts stand beside the replicates."""
    call = ("power", "--effect", "0.1", "--discordance", "0.3", "--flips", "0.2")
    found = processes.run(*call, "--json", cwd=tmp_path).json["designs"]
    shown = processes.run(*call, cwd=tmp_path).stdout

    assert [d["replicates"] for d in found] == [1, 2, 4, 8]
    assert [d["tasks"] for d in found] == sorted((d["tasks"] for d in found), reverse=True)
    assert all(d["rollouts"] == 2 * d["tasks"] * d["replicates"] for d in found)
    assert f"{found[2]['replicates']}           {found[2]['tasks']}" in shown


def test_a_study_that_is_too_large_says_so(processes, tmp_path):
    """Where the gate would need more pairs than were looked at, no figure stands for them."""
    call = ("power", "--effect", "0.001", "--discordance", "0.3")
    found = processes.run(*call, "--json", cwd=tmp_path).json["pairs_sequential"]
    shown = processes.run(*call, cwd=tmp_path).stdout

    assert (found["median"], found["p80"], found["max_pairs"]) == (None, None, 4000)
    assert "half of the runs by more than 4000, 80 % by more than 4000" in shown
    assert "with at most 4000" in shown


def test_an_impossible_effect_is_refused(processes, tmp_path):
    """A lift above the discordance cannot be; the error says so."""
    done = processes.run("power", "--effect", "0.4", "--discordance", "0.3", cwd=tmp_path)
    assert done.code == 1
    assert "0.4" in done.stderr


@pytest.fixture
def moody():
    """A model that passes every other call, whatever it is asked."""
    calls = iter(range(10**6))

    def answer(body):
        word = body["messages"][1]["content"].rpartition(" ")[2]
        return ok(word.upper() if next(calls) % 2 else "no")

    with LoopbackServer(answer) as server:
        yield server


def test_a_worker_that_contradicts_itself_is_measured_and_quoted(processes, tmp_path, moody):
    """Both arms are equal and run anew; what flips is kept, and the next report quotes it."""
    root = write_project(tmp_path / "project", moody.url)
    first = processes.run("calibrate", "--suite", "small", "--tasks", "12", "--json", cwd=root)
    assert first.code == 0, first.stderr
    found = first.json
    assert found["pairs"] == 12
    assert found["flips"] == found["gains"] + found["regressions"] > 0
    assert found["flip_rate"] == found["flips"] / 12
    low, high = found["flip_interval"]
    assert 0 <= low < found["flip_rate"] < high <= 1
    rollouts = events(root, "rollout.finished")
    assert [r["purpose"] for r in rollouts] == ["calibrate"] * 24
    assert len({r["key"] for r in rollouts}) == 24

    again = processes.run("calibrate", "--suite", "small", "--tasks", "12", "--json", cwd=root)
    assert again.code == 0, again.stderr
    assert again.json["spend"]["cached"] == 0  # nothing is read from the first run
    measured = processes.run(
        "eval", "shout", "--suite", "small", "--tasks", "4", "--json", cwd=root
    )
    assert measured.code in (0, 3), measured.stderr
    assert measured.json["calibration"]["flip_rate"] == again.json["flip_rate"]
    evolved = processes.run("evolve", "shout", "--suite", "small", "--json", cwd=root)
    assert evolved.json["calibration"] == measured.json["calibration"]


def test_a_dry_run_of_calibrate_spends_nothing(processes, tmp_path, moody):
    """The range of rollouts is exact: two for each task."""
    root = write_project(tmp_path / "project", moody.url)
    done = processes.run(
        "calibrate", "--suite", "small", "--tasks", "5", "--dry-run", "--json", cwd=root
    )
    assert done.json["rollouts"] == [10, 10]
    assert moody.requests == []
