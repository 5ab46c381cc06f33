"""Publishes the weights and arrays of the current profile in a DVC remote inside the repository, with model cards.

`dvc push` assumes that a folder is complete if its listing (the list of its files) is on the remote, and does not
report missing files. `dvc pull --allow-missing` fetches nothing if one file of a listed folder is missing. So every
file of the remote is checked here, and incomplete outputs are pushed again or removed.

Git keeps every version of the remote permanently, so sizes are limited. Raw data, data sets and checkpoints are never
published.

`share` pushes DVC's run cache to another DVC remote. The run cache has an entry for every execution of a stage. An
entry can restore its stage only if all outputs of the entry are available, so `share` pushes the outputs of all
entries, too. `dvc push --run-cache` would push all entries, but only the outputs that `dvc.lock` names.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path, PurePath

import yaml
from dvc.repo import Repo
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.errors import UserError
from pipeline.files import md5, read_json, read_yaml, write_text
from pipeline.layout import Layout
from pipeline.models import pictures_of_an_image
from pipeline.params import Params, load_params
from pipeline.profiles import FILES, LOCK, PARAMS
from pipeline.results.freshness import STATES
from pipeline.results.outcome import RECORD
from pipeline.results.provenance import unique
from pipeline.results.reading import Results
from pipeline.results.spread import flat
from pipeline.state import Output, outputs, profile_items
from pipeline.systems import SYSTEMS

REMOTE = "published"
"""The name of the DVC remote, and its folder in the repository."""
LARGEST_FILE = 20_000_000
"""Maximum size of a published file, in bytes."""
LARGEST_TOTAL = 150_000_000
"""Maximum size of all published files together, in bytes. The files of other profiles are included."""
_MODELS, _ARRAYS = "models/", "results/"


def publish(root: Path) -> tuple[dict[Output, int], dict[Output, str]]:
    """Copy the current profile's models and arrays to the remote if their state is "recorded" (`freshness.STATES`).
    Later changes of the code are ignored. Write a card for each published run, and the list of cards. Returns the size
    of each published output in bytes, and the reason for each output that is left out or removed. Raises `UserError`
    if there are uncommitted changes, the profile has `publish: false`, the remote becomes too large, or DVC fails.
    """
    params = load_params(root / PARAMS)
    if not params.publish:
        raise UserError(f"profile {params.profile} has `publish: false` in {PARAMS}")
    # What is published must come from a commit. Only the remote and the choice of profile may be uncommitted.
    apart = [f":(exclude){name}" for name in (REMOTE, "profiles", *FILES)]
    changed = _run(root, "git", "status", "--porcelain", "--", ".", *apart)
    committed = _run(root, "git", "ls-tree", "-r", "HEAD")
    for file in FILES:  # its content may be committed at another path, because switching profiles moves the file
        if (root / file).exists() and _run(root, "git", "hash-object", file).strip() not in committed:
            changed += f" M {file}\n"
    if changed:
        raise UserError(f"there are uncommitted changes; commit or undo them first:\n{changed}")
    states = {item.label: item.state for item in profile_items(root, root / PARAMS)}
    here = [output for output in outputs(root / LOCK) if output.path.startswith((_MODELS, _ARRAYS))]
    wanted = [output for output in here if states.get(output.label) == "recorded"]
    left_out = {output: STATES[states.get(output.label, "gone")] for output in here if output not in wanted}
    elsewhere = [output for lock in root.glob(f"profiles/*/{LOCK}") for output in outputs(lock)]
    left_out |= push(root, wanted, [*here, *elsewhere])
    sizes = {
        output: sum(path.stat().st_size for path in stored(root, output)) for output in wanted if output not in left_out
    }
    models = {output.path for output in [*here, *elsewhere] if _place(root, output.md5).exists()}
    for card in (root / REMOTE / "cards").glob("*.md"):
        if f"{_MODELS}{card.stem}" not in models:
            card.unlink()
    _write_cards(root, params, sizes, left_out)
    return sizes, left_out


def push(root: Path, wanted: Sequence[Output], locked: Iterable[Output]) -> dict[Output, str]:
    """Push the outputs `wanted`. On the remote, keep only those outputs of `locked` that are complete and have no file
    larger than `LARGEST_FILE`. Returns a reason for each output of `wanted` that is not on the remote afterwards, and
    for each output of `locked` that was removed. Raises `UserError` if the remote is now too large, or DVC fails.
    """
    incomplete = _tidy(root, locked)
    new = [output.path for output in wanted if not _place(root, output.md5).exists()]
    if new:  # Without paths, DVC would push everything. It reads dvc.lock once per path, so only new outputs are given.
        _run(root, sys.executable, "-m", "dvc", "push", "-q", "-r", REMOTE, *new)
    refused = dict.fromkeys(wanted, "its files are not in DVC's cache") | incomplete | _tidy(root, locked)
    if (total := sum(path.stat().st_size for path in _files(root))) > LARGEST_TOTAL:
        raise UserError(
            f"{REMOTE}/ has {total / 1e6:.0f} MB now, at most {LARGEST_TOTAL / 1e6:.0f} are allowed. Undo it with `git "
            f"checkout {REMOTE} && git clean -fd {REMOTE}`, and share large runs by another DVC remote."
        )
    return {output: why for output, why in refused.items() if not _place(root, output.md5).exists()}


def stored(root: Path, output: Output) -> list[Path]:
    """Paths on the remote: an output's files and any folder's listing. `UserError` if one is missing or damaged."""

    def checked(name: str) -> Path:
        path = _place(root, name)
        if md5(path) != name.removesuffix(".dir"):
            raise UserError(f"{path.relative_to(root)} is {'damaged' if path.exists() else 'missing'}")
        return path

    listing = checked(output.md5)
    entries = json.loads(listing.read_text(encoding="utf-8")) if output.md5.endswith(".dir") else []
    return [listing, *(checked(entry["md5"]) for entry in entries)]


def _tidy(root: Path, locked: Iterable[Output]) -> dict[Output, str]:
    """Delete all content on the remote (but no cards), except complete outputs of `locked` without a file above
    `LARGEST_FILE`. Returns the reason for each output of `locked` that was removed.
    """
    kept, refused = set(), {}
    for output in locked:
        if not _place(root, output.md5).exists():
            continue
        try:
            files = stored(root, output)
        except UserError as error:
            refused[output] = str(error)
            continue
        if (largest := max(path.stat().st_size for path in files)) > LARGEST_FILE:
            refused[output] = f"it has a file of {largest / 1e6:.2f} MB (limit: {LARGEST_FILE / 1e6:.0f} MB)"
        else:
            kept.update(files)
    for path in _files(root):
        if path not in kept:
            path.unlink()
    return refused


def _place(root: Path, name: str) -> Path:
    """The path at which DVC keeps the content with the hash `name` on the remote."""
    return root / REMOTE / "files" / "md5" / name[:2] / name[2:]


def _files(root: Path) -> list[Path]:
    return [path for path in (root / REMOTE / "files").rglob("*") if path.is_file()]


def _run(root: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"`{' '.join(command[:4])} ...` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _write_cards(root: Path, params: Params, sizes: Mapping[Output, int], left_out: Mapping[Output, str]) -> None:
    """Write the cards of published runs, and the list of all cards."""
    layout, cards = Layout(root, params.profile), root / REMOTE / "cards"
    results = Results(layout.records_folder, layout.arrays_folder)
    scorecard = layout.scorecard_path
    claims = read_json(scorecard) if scorecard.exists() else []
    folder = FileSystemLoader(Path(__file__).parent)
    templates = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    for output, size in sizes.items():
        if not output.path.startswith(_MODELS):
            continue
        run = output.path.removeprefix(_MODELS)
        trained, evaluated = (results.numbers(stage, run) for stage in ("train", "evaluate"))
        assert trained is not None  # the training is recorded
        measured = json.loads((evaluated or trained).path.read_text(encoding="utf-8"))
        rows = [row for row in claims if f"train/{run}" in row["provenance"].get("items", [])]
        record = trained.records[-1]
        settings = record["settings"]["runs"][run]
        text = templates.get_template("card.md.j2").render(
            run=run,
            size=size,
            description=SYSTEMS[settings["variant"]].description,
            image_size=params.datasets[settings["dataset"]].canvas,
            pictures=pictures_of_an_image(params.runs[run].channels),
            record=record,
            evaluated=evaluated is not None,
            figures=flat({key: value for key, value in measured.items() if key != RECORD}),
            rows=rows,
            remarks=unique(remark for row in rows for remark in row["remarks"]),
            settings=yaml.safe_dump(settings, sort_keys=False, default_flow_style=None, width=110),
        )
        write_text(cards / f"{run}.md", text)
    text = templates.get_template("published.md.j2").render(
        profile=params.profile,
        runs=sorted(path.stem for path in cards.glob("*.md")),
        arrays=[size for output, size in sizes.items() if output.path.startswith(_ARRAYS)],
        left_out={output.path: why for output, why in left_out.items()},
    )
    write_text(root / REMOTE / "README.md", text)


def share(root: Path, remote: str | None = None, without: Sequence[str] = ()) -> tuple[int, int]:
    """Push the run cache of the repository in `root`, and the outputs of the cache's entries. If an entry has an output
    at or below a path in `without`, none of the entry's outputs are pushed. Returns the number of all entries, and the
    number of files that were pushed. Raises `UserError` if no output is at or below a path in `without`, or the remote
    is unknown, does not accept all files, cannot hold a run cache (HTTP), or is `published/`, which is in Git.
    """
    try:
        with chdir(root), Repo() as repo, repo.lock:  # DVC takes paths in entries as relative to the working folder
            if Path(repo.cloud.get_remote(remote).path).resolve() == Path(REMOTE).resolve():
                raise UserError(f"{REMOTE}/ is in Git, the run cache has raw data and own images: use another remote")
            entries = {
                (path.parent.name, path.name): [PurePath(out["path"]) for out in read_yaml(path)["outs"]]
                for path in Path(repo.stage_cache.cache_dir).glob("*/*/*")
            }
            known = {PurePath(os.path.relpath(out.fs_path, root)) for out in repo.index.outs}.union(*entries.values())
            for place in without:
                if not any(path.is_relative_to(place) for path in known):
                    raise UserError(f"no stage has an output at or below {place}: nothing was pushed")
            withheld = {path for path in known for place in without if path.is_relative_to(place)}
            repo.stage_cache.push(remote)
            chosen = [entry for entry, outs in entries.items() if withheld.isdisjoint(outs)]
            hashes = set().union(*repo.stage_cache.get_used_objs(chosen).values())
            result = repo.cloud.push(hashes, remote=remote)
    except UserError:
        raise
    except Exception as error:  # each kind of remote raises exceptions of its own
        raise UserError(f"cannot push to the remote {remote or '(default)'}: {error}") from error
    if result.failed:
        where, advice = f"the remote {remote or '(default)'}", "check its space and permissions, and call share again"
        raise UserError(f"{len(result.failed)} files could not be pushed to {where}: {advice}")
    return len(entries), len(result.transferred)
