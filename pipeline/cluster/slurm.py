"""Workers of a fan-out as SLURM jobs, one worker a job, by dask-jobqueue. Jobs that end are replaced."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pipeline.cluster.start import MANY
from pipeline.errors import UserError

LOGS = Path(".cache") / "fan-out" / "slurm"


class SlurmError(UserError):
    """SLURM is missing or does not take such jobs."""


def keep_workers(
    root: Path,
    jobs: int,
    *,
    cores: int,
    memory: str,
    gpus: int,
    time: str,
    partition: str | None = None,
    account: str | None = None,
    directives: Sequence[str] = (),
    interface: str | None = None,
    port: int = 0,
) -> None:
    """Run a scheduler in this process and keep `jobs` workers until Ctrl-C or SIGTERM; then end them.

    Args:
        root: a clone of the repository that the nodes see.
        gpus: of a job, 0 or 1.
        directives: more lines for `#SBATCH`.
        interface: the network interface on which nodes reach this machine.
        port: of the scheduler; 0: any free one.

    Raises:
        SlurmError: there is no SLURM, no dask-jobqueue, or such jobs are refused.
    """
    try:
        import dask
        from dask_jobqueue import SLURMCluster
    except ModuleNotFoundError as error:
        raise SlurmError(f"{error.name} is missing: pip install '.[cluster]'") from None
    if not shutil.which("sbatch"):
        raise SlurmError("there is no sbatch here: run this on a login node of a SLURM cluster")

    dask.config.set({"distributed.scheduler.allowed-failures": MANY})
    logs = root / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    place = shlex.quote(str(root))
    cluster = SLURMCluster(
        queue=partition,
        account=account,
        cores=1,  # threads: a worker runs one stage at a time
        processes=1,
        job_cpu=cores,
        memory=memory,
        walltime=time,
        interface=interface,
        log_directory=str(logs),
        local_directory=str(logs),
        # A job that SLURM started again would be one more: this process replaces those that end.
        job_extra_directives=["--no-requeue", *(["--gres=gpu:1"] if gpus else []), *directives],
        job_script_prologue=[f"cd {place}", f"export OMP_NUM_THREADS={cores} PYTHONPATH={place}"],
        worker_extra_args=["--no-nanny", *(["--resources", "GPU=1"] if gpus else [])],
        scheduler_options={"port": port, "dashboard": False},
        python=sys.executable,
    )
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with cluster:
        _check(cluster.job_script())
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)
        print(f"{jobs} jobs. Now: python -m pipeline fan-out --scheduler {cluster.scheduler_address}", flush=True)
        ended.wait()


def _check(script: str) -> None:
    """Ask SLURM whether it would take such a job."""
    tried = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False)
    if tried.returncode:
        raise SlurmError(f"SLURM does not take such jobs: {tried.stderr.strip()}")
