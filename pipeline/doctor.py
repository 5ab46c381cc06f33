"""Checks of software, files, disk and network for `python -m pipeline doctor`, with advice for each problem."""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pipeline.commits import git_state
from pipeline.errors import ParamsError, UserError
from pipeline.layout import raw_folder, tracking_store

NEEDED_GIB = 5.0


def examine(root: Path) -> Iterator[tuple[str, bool, str]]:
    """Run all checks. Yields each check's name, whether it passed, and a text: its result, or an error with advice."""
    checks = (_python, _torch, _kernels, _parameters, _lock, _disk, _downloads, _mlflow, _dvc, _git)
    for check in checks:
        what = check.__name__.strip("_").replace("_", "-")
        try:
            yield what, True, check(root)
        except Exception as error:  # any error in a check is reported, and the next check runs
            named = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            yield what, False, named + " ".join(str(error).split())


def _python(_: Path) -> str:
    return platform.python_version()


def _torch(root: Path) -> str:
    import torch

    from pipeline.compute import choose_device
    from pipeline.params import load_params

    with suppress(ParamsError):  # `_parameters` reports this error
        choose_device(load_params(root / "params.yaml").device)
    if not torch.cuda.is_available():
        return f"{torch.__version__} on CPU, {torch.get_num_threads()} threads"
    free, total = (each / 2**30 for each in torch.cuda.mem_get_info())
    return f"{torch.__version__} on {torch.cuda.get_device_name()}, {free:.0f} of {total:.0f} GiB free"


def _kernels(_: Path) -> str:
    from pipeline import kernels

    names = ", ".join(source.stem for source in kernels.sources())
    compiled = [kernel for source in kernels.sources() if (kernel := kernels.find(source))]
    if len(compiled) == len(kernels.sources()):
        return f"{names}: compiled, {compiled[0].form}"
    # Missing kernels are not an error: without them, models are slower, but their results are right.
    advice = "" if kernels.compiler() else f"{kernels.compiler_advice()}; then "
    return f"{names}: not compiled, so slower PyTorch operators are used; {advice}run python -m pipeline kernels"


def _parameters(root: Path) -> str:
    from pipeline.params import load_params

    params = load_params(root / "params.yaml")
    return f"profile {params.profile}, {len(params.runs)} runs"


def _lock(root: Path) -> str:
    from pipeline.state import outputs

    recorded = {each.label for each in outputs(root / "dvc.lock") if each.path.startswith("reports/")}
    return f"dvc.lock has {len(recorded)} results"


def _disk(root: Path) -> str:
    if not os.access(root, os.W_OK):
        raise UserError(f"no permission to write in {root}: work in a clone of your own")
    free = shutil.disk_usage(root).free / 2**30
    found = f"{free:.0f} GiB free in {root}"
    if free < NEEDED_GIB:
        raise UserError(f"{found}: free some space: data and models need {NEEDED_GIB:g} GiB")
    return found


def _downloads(root: Path) -> str:
    """Check the user's mirror. If none is set, check that missing data are on public servers, and that one answers."""
    from pipeline.data.sources import MIRROR_VARIABLE, SOURCES, local_path
    from pipeline.params import load_params

    address = os.environ.get(MIRROR_VARIABLE, "")
    if address and (folder := local_path(address)):
        if not folder.is_dir():
            raise UserError(f"{MIRROR_VARIABLE} names a folder that does not exist, {address}: correct it, or unset it")
        return f"mirror {address}"
    for name in () if address else load_params(root / "params.yaml").sources:
        if all((raw_folder(root, name) / file).exists() for file in SOURCES[name].files):
            continue
        if not SOURCES[name].mirrors:
            advice = f"set {MIRROR_VARIABLE} to a copy of it, or use other data (docs/data.md)"
            raise UserError(f"{name} cannot be downloaded from a public server: {advice}")
        address = address or next((each for each in SOURCES[name].mirrors if each.startswith("http")), "")
    if not address:
        return "nothing to download"
    import requests

    try:
        requests.head(address, timeout=5.0, allow_redirects=True)
    except requests.RequestException:
        advice = f"missing data cannot be downloaded; set {MIRROR_VARIABLE} to a local folder or another URL"
        raise UserError(f"no answer from {address}: {advice}") from None
    return f"{address} answers"


def _mlflow(root: Path) -> str:
    store = tracking_store(root)
    if store is None:
        return "switched off by CAPSULES_MLFLOW; runs are recorded under .tracking only"
    store.probe()
    created = " (will be created at its first use)" if store.database and not store.database.exists() else ""
    return f"{version('mlflow')} at {store.shown}{created}"


def _dvc(root: Path) -> str:
    if not (root / ".dvc" / "config").exists():
        raise UserError(f"{root}/.dvc is missing: clone the repository again")
    marks = root / ".dvc" / "tmp" / "rwlock"
    try:
        json.loads(marks.read_text(encoding="utf-8") if marks.exists() else "{}")
    except ValueError:
        raise UserError(f"cannot read {marks}: stop all `dvc` commands, then delete it") from None
    return version("dvc")


def _git(root: Path) -> str:
    commit, _ = git_state(root)
    if commit == "unknown":
        raise UserError("no commit here: install Git, and clone the repository, because results record their commit")
    return f"at {commit[:10]}"
