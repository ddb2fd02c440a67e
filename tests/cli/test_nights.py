"""Two nights of one project: what the first leaves undecided goes on in the second."""

from support.small_project import events, write_project

NIGHT = ("nightly", "--suite", "small", "--json")


def candidates(report):
    """Return the candidates of a night that came to the gate, by id."""
    every = (c for skill in report["skills"] for c in skill["candidates"])
    return {c["id"]: c for c in every if c["confirm"]}


def test_candidates_without_a_verdict_go_on_the_next_night(server, tmp_path, commands_of):
    """They keep id and evidence on fresh tasks; cohorts stay apart; replay joins both nights."""
    root = write_project(tmp_path / "project", server.url)
    text = (root / "skillforge.toml").read_text().replace("max_tasks = 40", "max_tasks = 8")
    text = text.replace("[nightly]\n", '[nightly]\nskills = ["shout", "yell"]\n')
    (root / "skillforge.toml").write_text(text)
    commands = commands_of(root)

    def call(*arguments):
        done = commands(*arguments)
        assert done.code == 0, done.stdout + done.stderr
        return done

    first, second = call(*NIGHT).json, call(*NIGHT).json
    before, after = candidates(first), candidates(second)
    carried = before.keys() & after.keys()
    assert carried
    for name in carried:
        assert (before[name]["looks"], after[name]["looks"]) == (1, 2)
        assert after[name]["confirm"]["pairs"] > before[name]["confirm"]["pairs"]
        assert f"in {first['run_id']}" in after[name]["reasons"][-1]
    assert all(after[name]["looks"] == 1 for name in after.keys() - carried)
    low, high = second["estimate"]["rollouts"]
    assert low <= second["spend"]["rollouts"] <= high

    orders = [event["order"] for event in events(root, "gate.registered")]
    assert all(len(set(order)) == len(order) for order in orders)
    closed = events(root, "cohort.closed")
    own, new, again = ({m["candidate"] for m in cohort["members"]} for cohort in closed)
    names = [cohort["cohort"] for cohort in closed]
    assert names == [first["run_id"], second["run_id"], first["run_id"]]
    assert own == again
    assert not own & new
    assert call("replay", "--json").json["problems"] == []

    index = root / ".skillforge" / "index.faiss"
    kept = index.stat().st_mtime_ns
    call("search", "names in capitals", "--json")
    assert index.stat().st_mtime_ns == kept  # it is that of what is served, not of a trial
    shown = call("nightly", "--suite", "small", "--max-rollouts", "30").stdout
    assert "looks  of  decision" in shown
