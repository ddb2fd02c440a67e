"""The Python API: a project as an object, for notebooks and scripts.

    import skillforge

    with skillforge.open_project() as project:
        report = project.evolve("units", max_rollouts=400)
        print(project.decisions())

It stands beside the command line and does the same work through the same parts: a run that one of
them began and could not finish, the other goes on with. Each call opens the project, does its work
and closes it, so that a notebook left open locks nobody out.

Calls that run rollouts block until they are done, also where an event loop is running already, as
in Jupyter: the work then gets a thread with a loop of its own, and interrupting the cell cancels
it. Progress goes to stderr. What had finished before an interrupt, an error or a spent budget is in
the ledger, and the same call again does not repeat it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from skillforge import analytics
from skillforge.adapters.project import write_project
from skillforge.adapters.shipped import shipped_skills
from skillforge.cli import jobs
from skillforge.cli.engine import Engine, drive, make_engine
from skillforge.cli.fallback import with_fallback
from skillforge.cli.ledger import recompute
from skillforge.cli.limits import Limits, at_least, paying
from skillforge.cli.packs import export_packs
from skillforge.cli.session import open_session
from skillforge.core.arms import TWO_ARMS, check_arms
from skillforge.core.package import Package
from skillforge.core.packs import HARNESS_FOLDERS
from skillforge.core.units import Unit, parse_units
from skillforge.errors import PackError
from skillforge.workflows.audit import UnitAudit
from skillforge.workflows.candidates import SkillReport
from skillforge.workflows.evaluate import Evaluation
from skillforge.workflows.nightly import NightReport
from skillforge.workflows.replay import Replay
from skillforge.workflows.retrieve import Hit

if TYPE_CHECKING:
    import polars as pl

Result = TypeVar("Result")
Job = Callable[[Engine], Awaitable[tuple[Result, jobs.Spent]]]

BY_USER = "asked for by the user"


def open_project(folder: str | Path | None = None) -> Project:
    """Open the project at a folder; None looks from the working directory upwards.

    Raises:
        ConfigError: There is no project, or its file has a mistake; it is named.
        LedgerError: The ledger cannot be opened.
    """
    with open_session(None if folder is None else Path(folder)) as session:
        return Project(session.project.root.resolve())


def init_project(
    folder: str | Path,
    *,
    library: str = "skills",
    model: str = "local/smollm2",
    shipped: bool = False,
) -> Project:
    """Write a project file into a folder and open the project.

    Args:
        folder: Made if need be.
        library: Folder of the skill packages, relative to the project's; made if need be.
        model: litellm name of worker and proposer; ``local/smollm2`` is embedded and needs no key.
        shipped: Copy the skills that come with skillforge into the library; one whose folder is
            there already is left alone.

    Raises:
        ConfigError: There is a project file already, or it cannot be written.
    """
    root = Path(folder)
    write_project(root, library=library, model=model)
    (root / library).mkdir(parents=True, exist_ok=True)
    for source in sorted(shipped_skills().iterdir()) if shipped else ():
        if source.is_dir() and not (root / library / source.name).exists():
            copytree(source, root / library / source.name)
    return open_project(root)


class Project:
    """A skill library with its ledger, from `open_project` or `init_project`.

    Every method raises `ConfigError` if the project file has a mistake, and `LedgerError` if the
    ledger cannot be read or, where the method writes, while another command is writing. Those that
    run rollouts (`evaluate`, `evolve`, `nightly`, `audit`) take `Limits` and raise `SkillError` for
    a skill that is unknown or retired, `SuiteError` for a suite that is unknown, damaged or has no
    tasks for the skill, and `InfraError` if the model cannot be reached.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        """Folder of the project file."""

    def __repr__(self) -> str:
        return f"Project({str(self.root)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the embedded model if one was started; a later call starts it again."""
        from skillforge.adapters.local_model import close_all

        close_all()

    def skills(self, *, every: bool = False) -> pl.DataFrame:
        """Return one row per served skill, or of ``every`` skill: version, status, evidence."""
        with open_session(self.root) as session:
            return analytics.skills_frame(session.curator.state, every=every)

    def package(self, skill: str, version: str | None = None) -> Package:
        """Return the files of a skill: its current version, or one named by hash, prefix or date.

        Raises:
            SkillError: No such skill or version, or an ambiguous prefix.
        """
        with open_session(self.root) as session:
            return session.curator.package(skill, version)

    def units(self, skill: str, version: str | None = None) -> tuple[Unit, ...]:
        """Return the knowledge units of a skill: the spans that can be left out or edited.

        Raises:
            SkillError: No such skill or version, or an ambiguous prefix.
        """
        return parse_units(self.package(skill, version))

    def history(self, skill: str) -> pl.DataFrame:
        """Return one row per event in the life of a skill, oldest first.

        Raises:
            SkillError: No such skill.
        """
        with open_session(self.root) as session:
            session.curator.state.skill(skill)
            return analytics.history_frame(session.ledger, skill)

    def retire(self, skill: str, *, reason: str = BY_USER) -> str:
        """Stop serving a skill; the package is kept whole. Returns its version.

        Raises:
            SkillError: No such skill, it is retired already, or its folder was edited by hand.
        """
        with open_session(self.root, write=True) as session:
            return session.curator.retire(skill, evidence={"by": "user"}, reason=reason)

    def restore(self, skill: str, version: str | None = None) -> str:
        """Serve a retired skill again, byte for byte: as last served, or a version of it.

        Raises:
            SkillError: No such skill or version, or it is served.
        """
        with open_session(self.root, write=True) as session:
            return session.curator.restore(skill, version)

    def adopt(self, skill: str, version: str | None = None) -> str:
        """Write a staged version to the folder, the newest by default. Returns it.

        Raises:
            SkillError: Nothing is staged, or what is there is not what it was decided against.
        """
        with open_session(self.root, write=True) as session:
            return session.curator.adopt(skill, version)

    def rollback(self, skill: str, *, to: str | None = None, reason: str = BY_USER) -> str:
        """Serve an earlier version again: ``to`` or a prefix of it, or the parent. Returns it.

        Raises:
            SkillError: No such version, nothing to go back to, or the folder was edited by hand.
        """
        with open_session(self.root, write=True) as session:
            return session.curator.roll_back(skill, to=to, reason=reason)

    def evaluate(
        self,
        skill: str,
        suite: str = "desk",
        *,
        arms: Sequence[str] = TWO_ARMS,
        tasks: int = 40,
        replicates: int = 1,
        **limits: Unpack[Limits],
    ) -> Evaluation:
        """Measure a skill against its absence by paired rollouts on up to ``tasks`` confirm tasks.

        Each task is run ``replicates`` times per arm. Nothing is decided about the library, and no
        task is spent. With the arms ``none``, ``description`` and ``full`` the effect is taken
        apart: ``effects`` then holds that of being listed, that of the body, and the whole.

        Raises:
            BudgetSpent: A cap was reached; the same call under a larger one goes on from there.
            ConfigError: There are no such arms; the message names those that there are.
        """
        at_least(1, tasks=tasks, replicates=replicates)
        job = partial(
            jobs.evaluate_skill,
            skill=skill,
            arms=check_arms(arms),
            tasks=tasks,
            replicates=replicates,
        )
        return self._pay(job, suite, limits)

    def evolve(
        self,
        skill: str,
        suite: str = "desk",
        *,
        stage_only: bool | None = None,
        **limits: Unpack[Limits],
    ) -> SkillReport:
        """Try to make one skill better: propose, screen, confirm on fresh tasks, decide, adopt.

        With ``stage_only``, what is proven waits for `adopt`; None leaves that to the project file.
        A spent budget ends it early; ``stopped_by`` then says so, and no error is raised.
        """
        job = partial(jobs.evolve_skill, skill=skill)
        return self._pay(job, suite, limits, stage_only=stage_only)

    def nightly(
        self, suite: str = "desk", *, stage_only: bool | None = None, **limits: Unpack[Limits]
    ) -> NightReport:
        """Evolve the library, audit it, retire what does harm, promote what e-BH lets through.

        With ``stage_only``, what is proven waits for `adopt`; None leaves that to the project file.
        Which skills, and how much, stands in the project file under ``[nightly]`` and ``[evolve]``.
        A spent budget ends it early; ``stopped_by`` then says so, and no error is raised.
        """

        def job(engine: Engine) -> Awaitable[tuple[NightReport, jobs.Spent]]:
            return jobs.run_night(engine, jobs.night_order(engine))

        return self._pay(job, suite, limits, stage_only=stage_only)

    def audit(
        self, skill: str, suite: str = "desk", *, tasks: int = 24, **limits: Unpack[Limits]
    ) -> UnitAudit:
        """Measure each unit of a skill by leaving it out, on up to ``tasks`` screen tasks (≥ 2).

        Raises:
            BudgetSpent: A cap was reached; the same call under a larger one goes on from there.
        """
        at_least(2, tasks=tasks)
        job = partial(jobs.audit_skill_units, skill=skill, tasks=tasks)
        return self._pay(job, suite, limits)

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """Return the ``k`` served skills nearest in meaning to a query, best first."""
        with open_session(self.root) as session:
            return session.retriever().search(query, k)

    def clusters(self, threshold: float | None = None) -> tuple[tuple[str, ...], ...]:
        """Return groups of served skills whose texts are close, largest first.

        ``threshold`` is the least mean cosine within a group, in [-1, 1]; None takes the project's.
        """
        with open_session(self.root) as session:
            chosen = session.project.settings.retrieval.cluster if threshold is None else threshold
            return session.retriever().clusters(chosen)

    def export(
        self, out: str | Path, *, harnesses: Sequence[str] = (), with_probation: bool = False
    ) -> list[dict[str, Any]]:
        """Write a pack per harness (all known ones by default), evidence beside each skill.

        Skills on probation are left out unless asked for. Returns per pack ``harness path files
        skills digest left_out recorded``; the last is false where the ledger cannot be written.

        Raises:
            PackError: A harness is unknown, or a pack cannot be written.
        """
        unknown = sorted(set(harnesses) - set(HARNESS_FOLDERS))
        if unknown:
            known = ", ".join(HARNESS_FOLDERS)
            raise PackError(f"no harness named {unknown[0]!r}; expected one of {known}")
        with open_session(self.root) as session:
            return export_packs(session, tuple(harnesses), Path(out), with_probation=with_probation)

    def rollouts(self, *, run: str | None = None) -> pl.DataFrame:
        """Return one row per rollout that was run; see `skillforge.analytics.rollouts_frame`."""
        with open_session(self.root) as session:
            return analytics.rollouts_frame(session.ledger, run=run)

    def decisions(self) -> pl.DataFrame:
        """Return one row per candidate; see `skillforge.analytics.decisions_frame`."""
        with open_session(self.root) as session:
            return analytics.decisions_frame(session.ledger)

    def pairs(self, candidate: str) -> pl.DataFrame:
        """Return a candidate's pairs and running evidence; see `skillforge.analytics.pairs_frame`.

        Raises:
            SkillError: The ledger knows no such candidate.
        """
        with open_session(self.root) as session:
            return analytics.pairs_frame(session.ledger, candidate)

    def spend(self) -> pl.DataFrame:
        """Return one row per run and what it spent; see `skillforge.analytics.spend_frame`."""
        with open_session(self.root) as session:
            return analytics.spend_frame(session.ledger)

    def replay(self) -> Replay:
        """Check chain, payloads and indexes, and recompute every decision from its rollouts."""
        with open_session(self.root) as session:
            return recompute(session)

    def _pay(
        self, job: Job[Result], suite: str, limits: Limits, *, stage_only: bool | None = None
    ) -> Result:
        told = paying(limits)

        async def work() -> Result:
            # Opened in here, because SQLite wants its connection used by one thread only.
            with open_session(self.root, write=True) as session:
                engine = make_engine(session, suite, told)
                engine.stage_only = stage_only
                result, _ = await with_fallback(engine, job)
                return result

        return drive(work())
