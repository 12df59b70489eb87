"""A study on a cluster: one SLURM job for each run, through submitit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fedshot.errors import UserError
from fedshot.experiment import Execution, run
from fedshot.spec import Spec
from fedshot.study.lock import among_jobs_in, turn_for
from fedshot.study.plan import Planned, clear_begun


def submit(
    plan: Sequence[Planned], out: Path, execution: Execution, parameters: Mapping[str, str], array: bool
) -> list[str]:
    """Submits what is left of a plan and returns the names of the jobs, in the order of the plan.

    Args:
        parameters: of submitit's executor, such as timeout_min or slurm_partition.
        array: whether all runs are one job array.
    """
    try:
        submitit = import_module("submitit")
    except ImportError:
        raise UserError("--slurm needs submitit, which is not installed: pip install 'fedshot[slurm]'") from None
    executor = submitit.AutoExecutor(folder=str(out / "slurm"))
    try:
        executor.update_parameters(**{key: _number_or_text(value) for key, value in parameters.items()})
    except (TypeError, ValueError, NameError) as error:
        raise UserError(f"--slurm-set: submitit refuses it: {error}") from None
    left = list({planned.folder: planned for planned in plan if planned.state != "done"}.values())
    if not left:
        return []
    specs, folders = [planned.spec.model_dump_json() for planned in left], [str(planned.folder) for planned in left]
    outs, executions = [str(out)] * len(left), [execution] * len(left)
    if array:
        jobs = executor.map_array(run_one, specs, folders, outs, executions)
    else:
        jobs = [executor.submit(run_one, *job) for job in zip(specs, folders, outs, executions, strict=True)]
    return [str(job.job_id) for job in jobs]


def run_one(spec: str, folder: str, out: str, execution: Execution) -> float:
    """The work of a job; returns the accuracy. A second job of the same run waits, and finds it finished."""
    name = Path(folder).name
    with among_jobs_in(Path(out)), turn_for(Path(out) / "locks" / name):
        clear_begun(Path(folder))
        asked = Spec.model_validate_json(spec)
        return run(asked, Path(folder), replace(execution, resume=True)).final.accuracy


def _number_or_text(value: str) -> Any:
    return int(value) if value.isdecimal() else value
