"""The commands of `python -m pipeline`. Slow imports are inside the commands, so that `--help` answers at once."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import ParamsError, UserError, show_error
from pipeline.layout import find_root
from pipeline.profiles import Profiles, merges_written_out

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tools around the pipeline: profiles, comparison, publishing, execution on other machines, tracking, checks. "
    "Stages: python -m stages.<name> --help.",
)
profile_app = typer.Typer(invoke_without_command=True, help="List the profiles (without a command), or switch them.")
app.add_typer(profile_app, name="profile")
Targets = Annotated[
    list[str] | None, typer.Argument(help="stages or items, as for `dvc repro`; default: all of dvc.yaml")
]


@profile_app.callback()
def profile_list(context: typer.Context) -> None:
    """List the profiles and mark the current one."""
    if context.invoked_subcommand is not None:
        return
    profiles = Profiles(find_root())
    found, current = profiles.all(), profiles.current
    width = max(len(profile.name) for profile in found)
    for profile in found:
        mark = "*" if profile.name == current else " "
        print(f"{mark} {profile.name:<{width}}  {profile.about}{'' if profile.has_lock else ' (not yet reproduced)'}")


@profile_app.command("current")
def profile_current() -> None:
    """Print the current profile's name."""
    print(Profiles(find_root()).current)


@profile_app.command("switch")
def profile_switch(name: Annotated[str, typer.Argument(help="the profile to make current")]) -> None:
    """Make another profile current. The current params.yaml and dvc.lock, with all edits, move to profiles/."""
    switched = Profiles(find_root()).switch(name)
    print(f"switched to profile {name}; run it with `make repro`" if switched else f"{name} is the current profile")


@app.command()
def sync_mlflow() -> None:
    """Send MLflow the runs that were recorded only in .tracking while MLflow was not available."""
    from pipeline.operations.show_runs import delivery_of, send

    send(delivery_of(find_root()))


@app.command()
def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="the server's port")] = 5000) -> None:
    """Show the runs of this repository in MLflow's UI, at http://127.0.0.1:<port>, and print links to saved views."""
    from pipeline.operations.show_runs import show

    show(find_root(), port)


@app.command()
def status(
    profile: Annotated[str | None, typer.Argument(help="the profile; by default the current one")] = None,
) -> None:
    """List a profile's items, their states (such as recorded, stale or missing) and times."""
    from pipeline.locks import is_running
    from pipeline.results.freshness import table
    from pipeline.state import profile_items

    profiles = Profiles(root := find_root())
    name = profile or profiles.current
    here = name == profiles.current
    found = profile_items(root, profiles.params_path(name), lambda label: here and is_running(root, label), code=True)
    *lines, total = table(found)
    print(*lines, f"items: {total}", sep="\n")
    if any(item.estimated and item.hours for item in found):
        print("`~` and `about` mark estimates, from the median time of the stage's items")


@app.command()
def compare(
    sides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[A [B]]", help="revisions, profiles, or . for the working tree; default: HEAD and ."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="profile to read in revisions and `.`; default: the one current in the last of them"),
    ] = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="measure the spread between the machines that made A, B, ...")
    ] = False,
) -> None:
    """Show the parameters and the claims that differ between A and B, and which claims moved by more than chance."""
    from pipeline.comparison import noise as spread
    from pipeline.comparison.changes import changes, describe
    from pipeline.comparison.sides import WORKING_TREE, load_sides
    from pipeline.results.claims import load_claims

    root = find_root()
    words = [*(sides or ["HEAD"])]
    if len(words) == 1 and not noise:
        words.append(WORKING_TREE)
    if len(words) > 2 and not noise:
        raise UserError("compare takes two sides, or more with --noise")
    loaded = load_sides(root, words, profile)
    if noise:
        measured, skipped = spread.measure(loaded)
        path = spread.write(root, loaded, measured)
        print(f"{path.relative_to(root)}: spread of {len(measured)} claims over {len(loaded)} machines")
        if equal := sum(each.sd == 0 for each in measured.values()):
            print(f"unknown, because all machines have the same number: {equal} claims")
        for reason, claims in skipped.items():
            print(f"skipped, {reason}: {len(claims)} claims")
        return
    before, after = loaded
    spreads = (spread.read(root, before.profile), spread.read(root, after.profile))
    units = {claim.id: claim.unit for claim in load_claims()}
    print(*describe(before, after, changes(before, after, spreads), units), sep="\n")


@app.command()
def publish() -> None:
    """Copy recorded weights and arrays of the current profile to published/ (a DVC remote), and write model cards."""
    from pipeline.operations.publish import publish as publish_profile

    sizes, left_out = publish_profile(find_root())
    for output, why in left_out.items():
        print(f"not published: {output.path}: {why}")
    print(f"{len(sizes)} outputs published, {sum(sizes.values()) / 1e6:.1f} MB; add published/ to Git")


@app.command()
def share(
    remote: Annotated[str | None, typer.Option("--remote", "-r", help="a DVC remote; default: DVC's default")] = None,
    without: Annotated[list[str] | None, typer.Option(help="skip outputs of stages that write to this folder")] = None,
) -> None:
    """Push DVC's run cache and the outputs it lists to a DVC remote, from which other clones can restore all stages."""
    from pipeline.operations.publish import share as share_runs

    runs, files = share_runs(find_root(), remote, without or ())
    print(f"{runs} runs of stages, {files} files pushed")


@app.command()
def load(
    run: Annotated[str, typer.Argument(help="a trained run: the name of a folder in models/")],
    images: Annotated[
        list[Path] | None,
        typer.Argument(help="image files (two for a stereo pair), or one .npy file with a uint8 array [N, C, S, S]"),
    ] = None,
) -> None:
    """Load trained weights, and classify images by mean scores over seeds. For unsupervised models, count features."""
    import numpy as np

    from pipeline.data.datasets import reading
    from pipeline.layout import dataset_path, model_folder
    from pipeline.models import load_trained, read_images
    from pipeline.systems import CLASSIFIERS

    name = run.removeprefix("models/").rstrip("/")
    folder = model_folder(find_root(), name)
    if not folder.exists():
        _check_run(name)
    trained = load_trained(folder)
    size, channels, seeds = trained.image_size, trained.settings.channels, len(trained.models)
    parameters = sum(parameter.numel() for parameter in trained.models[0].parameters())
    print(f"{name}: {trained.settings.variant}, {parameters:,} parameters, {seeds} seed{'s' * (seeds > 1)}")
    print(f"images: {channels} x {size} x {size}")
    if not images:
        return
    given = read_images(images, channels, size)
    if trained.settings.variant in CLASSIFIERS:
        names, data = dict[int, str](), dataset_path(find_root(), trained.settings.dataset)
        if data.exists():
            with reading(data, "preprocess"), np.load(data) as stored:
                names = dict(enumerate(stored["classes"].tolist()))
        for index, scores in enumerate(trained.scores(given)):
            label = int(scores.argmax())
            called = f", {names[label]}" if label in names else ""
            print(f"image {index}: class {label}{called} (score {float(scores.max()):.3f})")
        return
    for name, values in trained.features(given)[0].items():
        print(f"{name}: {values.shape[1]} features per image")


def _check_run(name: str) -> None:
    """Raise `UserError` if the current profile has no run `name`. It names a profile that has it, or known runs."""
    from pipeline.params import read_params

    profiles = Profiles(find_root())
    runs = {each.name: list(read_params(profiles.params_path(each.name)).get("runs", {})) for each in profiles.all()}
    if name in (known := runs[profiles.current]):
        return
    if having := [profile for profile, names in runs.items() if name in names]:
        raise UserError(f"run '{name}' is in another profile: `python -m pipeline profile switch {having[0]}` first")
    raise UserError(f"there is no run '{name}'; profile {profiles.current} has {', '.join(known)}")


@app.command()
def check() -> None:
    """Check params.yaml, dvc.lock and own images, as `make repro` does first. Exit code 2: bad parameters or images."""
    import torch

    from pipeline.compute import choose_device
    from pipeline.memory import WEIGHT_COPIES, check_fits
    from pipeline.params import load_params
    from pipeline.state import outputs
    from pipeline.systems import build_model

    root = find_root()
    if not os.access(root, os.W_OK):
        raise UserError(f"{root} is not writable for you: work in a clone of your own")
    params = load_params(root / "params.yaml")
    made = {each.path.split("/")[1] for each in outputs(root / "dvc.lock") if each.path.startswith("reports/")}
    if made - {params.profile}:
        raise ParamsError(
            f"params.yaml says `profile: {params.profile}`, but dvc.lock belongs to {', '.join(sorted(made))}: correct "
            "the name, or make a profile of your own as docs/profiles.md says"
        )
    if merges_written_out(root / "params.yaml"):
        print("`dvc exp run -S` has rewritten params.yaml: sections with `<<: *name` now also list the values of the")
        print("section that they merge. An edit of that section no longer reaches them. With --temp, DVC leaves the")
        print("file alone.")
    try:
        choose_device(params.device)
        if params.own_images:
            from pipeline.data.own_images import check_places
            from pipeline.dependencies import Graph

            outs = [out for items in Graph.load(root).items.values() for item in items.values() for out in item.outs]
            check_places(params.own_images, root, outs)
        for name, run in params.runs.items():  # check that the model can be built for the data set's images
            size = params.datasets[run.dataset].canvas
            try:
                with torch.device("meta"):  # tensors with a shape, but without data
                    count = sum(weights.numel() for weights in build_model(run, size).parameters())
            except (UserError, ValueError, RuntimeError) as error:
                raise UserError(f"runs.{name}: no model for images of {size}x{size} pixels: {error}") from None
            what = f"runs.{name}: the model has {count:,} weights"
            check_fits(4 * WEIGHT_COPIES * count, what, "Make its layers smaller.")
    except UserError as error:
        raise ParamsError(str(error)) from None


@app.command()
def repro(
    targets: Targets = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="items at once; default: one per core")
    ] = None,
) -> None:
    """Run the items that are out of date, one on each core. The results are the same as with `dvc repro`."""
    from pipeline.operations.reproduce import reproduce

    raise typer.Exit(reproduce(find_root(), targets or (), jobs))


@app.command()
def fan_out(
    targets: Targets = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes on this machine; default: one per core")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="address, such as tcp://host:8786, of a Dask scheduler whose workers are used")
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", "-r", help="DVC remote, for workers without access to this DVC cache")
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="Git address, for workers without access to this repository")
    ] = None,
) -> None:
    """Run the out-of-date items on several workers, with Dask. If no item fails, `dvc repro` has nothing left to do."""
    from pipeline.operations.fan_out import fan_out as run

    if workers and scheduler:
        raise UserError("fan-out takes --workers or --scheduler, not both")
    raise typer.Exit(run(find_root(), targets or (), workers, scheduler, remote, repository))


@app.command()
def export(folder: Annotated[Path, typer.Argument(help="a new folder")]) -> None:
    """Write figures (PDF), tables (CSV, LaTeX) and claims into a folder, with metadata to archive and cite it."""
    from pipeline.operations.export import export as write

    print(f"{write(find_root(), folder)} files in {folder}")


@app.command()
def kernels() -> None:
    """Compile the C++ kernels that make EM routing, attention and rendering fast. `make` does this at set-up."""
    from pipeline.kernels import build, folder

    print(f"{len(build())} compiled kernels in {folder()}")


@app.command()
def doctor() -> None:
    """Check this machine: one line per check, with advice if something is wrong."""
    from pipeline.doctor import examine

    fine = True
    for what, ok, found in examine(find_root()):
        fine = fine and ok
        print(f"{'ok' if ok else 'problem':<8}{what:<12}{found}", flush=True)
    raise typer.Exit(0 if fine else 1)


def main() -> None:
    """Run the command line. An error that a user can fix is printed as one message, and sets the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show ± shows ? instead
    try:
        app()
    except (UserError, OSError) as error:
        sys.exit(show_error(error))
