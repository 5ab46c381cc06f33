"""Dask's scheduler and workers: started on this machine, or those of a running scheduler."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError

if TYPE_CHECKING:
    from distributed import Client

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = "10s"
MANY = 1_000_000  # deaths of workers that Dask charges a task with: the head counts attempts itself


class MissingPackagesError(UserError):
    """Dask is not installed."""

    exit_code = 2


class ConnectError(UserError):
    """The scheduler cannot be reached or used."""


def check_packages() -> None:
    """Raise `MissingPackagesError` if Dask is not installed."""
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise MissingPackagesError("fan-out needs the packages of `pip install .[cluster]`") from None


@contextmanager
def local_client(count: int) -> Iterator[Client]:
    """A client of `count` worker processes on this machine, which end with the block, or with this process.

    They listen on the loopback interface only, and Dask's dashboard is off. Each runs one stage at a time, with its
    share of the cores, and with a GPU of its own where there are enough; a worker that ends is started again.
    """
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    gpus = visible_gpus()
    quiet = {"host": LOOPBACK, "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
    workers: dict[int, dict[str, Any]] = {}
    for index in range(count):
        env = {"OMP_NUM_THREADS": str(os.environ.get("OMP_NUM_THREADS", max(1, cores() // count)))}
        resources = {}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
            resources = {"GPU": 1}
        options = {
            **quiet,
            "nthreads": 1,
            "env": env,
            "resources": resources,
            "memory_limit": 0,
            "silence_logs": logging.ERROR,
        }
        workers[index] = {"cls": Nanny, "options": options}
    scheduler = {"cls": Scheduler, "options": {**quiet, "port": 0}}
    settings = {
        "distributed.scheduler.allowed-failures": MANY,
        "distributed.comm.timeouts.connect": CONNECT_SECONDS,
        "distributed.scheduler.worker-saturation": 1.0,
    }
    with (
        dask.config.set(settings),
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(1, timeout=60)
        yield client


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """A client of a running scheduler.

    Args:
        address: such as `tcp://host:8786`, or `tls://host:8786` with the certificates of Dask's own configuration.

    Raises:
        ConnectError: it cannot be reached, or runs another version of Dask or Python.
    """
    import dask
    from distributed import Client

    with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_SECONDS}):
        try:
            client = Client(address, set_as_default=False, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise ConnectError(f"cannot connect to the scheduler {address}: {error}") from None
        with client:
            try:
                client.get_versions(check=True)
            except ValueError as error:
                raise ConnectError(
                    f"the scheduler {address} or its workers differ from this environment:\n{error}"
                ) from None
            yield client


def default_workers() -> int:
    """One worker a GPU, else one for every two cores."""
    return len(visible_gpus()) or max(1, cores() // 2)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The GPUs of this machine as `CUDA_VISIBLE_DEVICES` names them, without starting CUDA in this process."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [each.strip() for each in named.split(",") if each.strip() not in ("", "-1", "NoDevFiles")]
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(index) for index, line in enumerate(told.splitlines()) if line.startswith("GPU ")]
