"""Where attempts are performed, chosen on the command line and in the project file."""

import subprocess
import sys
from tempfile import TemporaryDirectory

import pytest
from support.small_project import events, write_project

EVAL = ("eval", "shout", "--suite", "small", "--tasks", "4", "--json")
MEASURED = ("pairs", "gains", "regressions", "residual", "retained", "lift", "e_value", "tokens")


def test_a_cluster_of_its_own_measures_the_same(server, processes, tmp_path):
    """`--executor ray` starts a cluster, and what comes out is what the driver alone measures.

    The result alone is on stdout, and no process is left.
    """
    here = write_project(tmp_path / "here", server.url, price=100.0)
    there = write_project(tmp_path / "there", server.url, price=100.0)
    one = processes.run(*EVAL, cwd=here)
    with TemporaryDirectory(prefix="ray-") as folder:  # sockets want a short path
        settings = {"SKILLFORGE_EXECUTOR_PROCESSES": "1", "RAY_TMPDIR": folder}
        two = processes.run(*EVAL, "--executor", "ray", cwd=there, env=settings)

    assert (one.code, two.code) == (3, 3), two.stderr
    assert {k: two.json[k] for k in MEASURED} == {k: one.json[k] for k in MEASURED}
    assert two.json["spend"]["usd"] == pytest.approx(one.json["spend"]["usd"])
    kept = [
        {r["key"]: (r["score"], r["cost_usd"], r["seconds"] > 0) for r in rollouts}
        for rollouts in (events(root, "rollout.finished") for root in (here, there))
    ]
    assert kept[0] == kept[1]
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert folder not in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--executor", "ray", "--model", "local/smollm2"), "is served inside one process"),
        (("--address", "127.0.0.1:1"), "expected 'asyncio' without address"),
        (("--executor", "ray", "--address", "127.0.0.1:1"), "no Ray cluster answers at"),
        (("--executor", "ray", "--address", "ray://127.0.0.1:10001"), "not that of Ray Client"),
        (("--executor", "ray", "--address", "here"), "expected HOST:PORT of the cluster itself"),
    ],
)
def test_what_cannot_be_together_is_refused(server, processes, tmp_path, arguments, said):
    """One embedded server per process would starve the others; an address is one of Ray's.

    Nobody waits for a cluster that is not there.
    """
    root = write_project(tmp_path / "project", server.url)

    done = processes.run(*EVAL, *arguments, cwd=root)

    assert done.code == 1
    assert said in done.stderr
    assert events(root, "run.started") == []


def test_where_ray_is_not_installed_the_extra_is_named():
    """Python is told that there is no such module; the message says what to install."""
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from skillforge.adapters.executors import AsyncioExecutor\n"
        "from skillforge.adapters.ray_executor import RayExecutor\n"
        "RayExecutor(AsyncioExecutor(1), processes=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 1
    assert "ConfigError: executor 'ray'" in done.stderr
    assert "pip install 'skillforge-evolve[ray]'" in done.stderr
