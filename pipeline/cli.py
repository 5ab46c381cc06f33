"""The commands behind `python -m pipeline`. Heavy imports are inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline.profiles import Profiles

_HELP = "Profiles of parameters, tracked runs, and a look at the machine. Stages: python -m stages.<name> --help."

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=_HELP)
profile_app = typer.Typer(
    invoke_without_command=True, help="List the profiles (without a command), compare or switch them."
)
app.add_typer(profile_app, name="profile")


@profile_app.callback()
def profile_list(context: typer.Context) -> None:
    """List the profiles, the current one marked."""
    if context.invoked_subcommand is not None:
        return
    profiles = _profiles()
    current, found = profiles.current, profiles.all()
    width = max(len(profile.name) for profile in found)
    for profile in found:
        mark = "*" if profile.name == current else " "
        print(f"{mark} {profile.name:<{width}}  {profile.about}{'' if profile.has_lock else ' (not yet reproduced)'}")


@profile_app.command("current")
def profile_current() -> None:
    """Print the current profile's name."""
    print(_profiles().current)


@profile_app.command("diff")
def profile_diff(name: Annotated[str, typer.Argument(help="the profile to compare with")]) -> None:
    """Parameters in which another profile differs from the current one."""
    differences = _profiles().differences(name)
    width = max((len(key) for key, _, _ in differences), default=0)
    for key, here, there in differences:
        print(f"{key:<{width}}  {'-' if here is None else here} -> {'-' if there is None else there}")
    if not differences:
        print(f"profile {name} has the same parameters as the current one")


@profile_app.command("switch")
def profile_switch(name: Annotated[str, typer.Argument(help="the profile to make current")]) -> None:
    """Move the current params.yaml and dvc.lock, edits included, to profiles/ and those of another profile here."""
    switched = _profiles().switch(name)
    print(f"now at profile {name}: `dvc repro` reproduces it" if switched else f"already at profile {name}")


@app.command()
def sync_mlflow() -> None:
    """Deliver to MLflow whatever an outage, or a machine without MLflow, left under .tracking."""
    from pipeline.tracking import Delivery
    from stages.workspace import find_root, tracking_folder, tracking_store

    root = find_root()
    store = tracking_store(root)
    if store is None:
        raise UserError("MLflow is switched off by CAPSULES_MLFLOW: unset it first")
    runs = 0
    for run, delivered in Delivery(tracking_folder(root), store).run():
        if delivered:
            runs += 1
            print(f"{run}: {delivered} events")
    print(f"{runs} runs brought up to date at {store.shown}" if runs else f"nothing to deliver to {store.shown}")


@app.command()
def check() -> None:
    """Check params.yaml, before DVC removes what a stage is about to write; exit code 2 where a value does not fit."""
    from pipeline.params import load_params
    from stages.workspace import find_root

    load_params(find_root() / "params.yaml")


@app.command()
def doctor() -> None:
    """Look at this machine: one line for each thing, and what to do where something is wrong."""
    from pipeline.doctor import examine
    from stages.workspace import find_root, tracking_store

    root = find_root()
    fine = True
    for finding in examine(root, tracking_store(root)):
        fine = fine and finding.ok
        advice = f"\n{'':20}{finding.advice}" if finding.advice and not finding.ok else ""
        print(f"{'ok' if finding.ok else 'problem':<8}{finding.what:<12}{finding.found}{advice}", flush=True)
    raise typer.Exit(0 if fine else 1)


def _profiles() -> Profiles:
    from pipeline.profiles import Profiles
    from stages.workspace import find_root

    return Profiles(find_root())


def main() -> None:
    """Run the command line; what a user can mend ends in one message and its exit code."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
