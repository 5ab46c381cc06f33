"""A copy of the repository whose items all run in minutes. This is for checks, not for results.

Every stage stays. Of each system, only the first run stays, with the items that use it. Numbers such as epochs and
images are cut (`MOST`), and so are lists and dicts (`LONGEST`). Comments in params.yaml are lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[1]

# The maximum of each number and, in `LONGEST`, of the length of each list or dict, by the parameter's name
MOST = {
    "epochs": 1,
    "early_epochs": 1,
    "seeding_epoch": 0,
    "teaching_epochs": 1,
    "ramp_epochs": 1,
    "patience": 1,
    "replicas": 2,
    "train": 64,
    "validation": 32,
    "test": 32,
    "probe_images": 64,
    "affine_versions": 1,
    "images": 8,
    "fit_images": 8,
    "derivative_images": 8,
    "refit_images": 10,
    "resamples": 10,
    "steps": 2,
    "starts": 2,
    "routing_starts": 2,
    "kept": 2,
    "judging": 2,
    "size": 1,
    "iterations": 4,
    "long_iterations": 4,
    "most_iterations": 20,
    "passes": 2,
    "seeds": 2,
    "samples": 1000,
    "examples": 200,
    "scenes": 4,
}
LONGEST = {
    "viewpoint": 1,
    "angles": 1,
    "turns": 1,
    "rotations": 1,
    "probe_strengths": 1,
    "pose_sd_floor": 1,
    "pixel_sd": 1,
    "temperature": 1,
    "sd_grid": 1,
    "sizes": 2,
    "epsilons": 2,
    "sds": 2,
    "penalties": 2,
    "conditions": 2,
    "engines": 2,
    "sigmas": 1,
    "shown": 1,
}


def copy_repository(folder: Path, *left_out: str) -> None:
    """Copy the files of the repository to `folder`, with the shortened parameters of the profile quick. Results, and
    files whose path starts with one of `left_out`, are not copied.
    """
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, capture_output=True, check=True, text=True).stdout.split("\0"):
        result = name.startswith("reports/") or name.endswith("dvc.lock")
        if name and not result and not name.startswith(left_out) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    params = shorten(yaml.safe_load(Profiles(ROOT).params_path("quick").read_text(encoding="utf-8")))
    leave_out_similar_runs(params)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")


def command(words: tuple[str, ...]) -> list[str]:
    """The arguments that run `words`, such as ("dvc", "repro"). DVC and this project run in this Python."""
    return [sys.executable, "-m", *words] if words[0] in ("dvc", "pipeline") else list(words)


def environment(site: Path, more: dict[str, str]) -> dict[str, str]:
    """Environment variables for commands in a copy: those of this process and `more`, but nothing about DVC, MLflow,
    Git or AWS. `site` is DVC's folder of locks.
    """
    foreign = ("DVC_", "MLFLOW_", "GIT_", "AWS_")
    people = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
        **dict.fromkeys(people, "nobody@example.org"),
        # DVC starts stages with the `python` it finds first.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "true",
        "DVC_SITE_CACHE_DIR": str(site),
        "CAPSULES_MLFLOW": "off",
        **more,
    }


def shorten(value: Any, name: str = "") -> Any:
    """`value` of the parameter `name`, with every number in `MOST` and every list or dict in `LONGEST` cut."""
    if isinstance(value, dict):
        items = list(value.items())[: LONGEST.get(name, len(value))]
        return {key: shorten(each, key) for key, each in items}
    if isinstance(value, list):
        return value[: LONGEST.get(name, len(value))]
    if isinstance(value, int) and name in MOST:
        return min(value, MOST[name])
    return value


def leave_out_similar_runs(params: dict[str, Any]) -> None:
    """Remove from `params` all runs but the first of each system, and the items that name a removed run."""
    first: dict[str, str] = {}
    for run, settings in params["runs"].items():
        first.setdefault(settings["variant"], run)
    left_out = set(params["runs"]) - set(first.values())
    for name, section in params.items():
        for key, item in list(section.items()) if isinstance(section, dict) and name != "evidence" else ():
            names = [key, *item.values()] if isinstance(item, dict) else [key]
            if any(name in left_out for name in names if isinstance(name, str)):
                del section[key]
    params["sweep"]["runs"] = [run for run in params["sweep"]["runs"] if run not in left_out]
    leave_out_evidence(params)


def leave_out_evidence(params: dict[str, Any]) -> None:
    """Remove from `evidence` in `params` the roles whose items are no longer in `params`."""
    items = {name for section in params.values() if isinstance(section, dict) for name in section}
    for section, part in (("ablation", "conditions"), ("regression_sets", "studies"), ("attention_sets", "studies")):
        for name, entry in params[section].items():
            items |= {f"{name}/{each}" if section == "ablation" else each for each in entry[part]}
    params["evidence"] = _still_there(params["evidence"], items)


def _still_there(roles: Any, items: set[str]) -> Any:
    """The roles (a dict, a list or an item) with items in `items`; None for other items. A list loses whole entries."""
    if isinstance(roles, list):
        return [each for each in roles if _still_there(each, items) == each]
    if isinstance(roles, dict):
        kept = {role: _still_there(item, items) for role, item in roles.items()}
        return {role: item for role, item in kept.items() if item is not None}
    return roles if roles in items else None
