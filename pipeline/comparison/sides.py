"""Loads the sides of a comparison from Git or from the working tree.

A side is the parameters and the scorecard of a profile. Files of a revision are read from Git without a checkout.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.scm import SCM, SCMError, resolve_rev
from scmrepo.exceptions import SCMError as GitError

from pipeline.errors import UserError
from pipeline.files import parse_yaml
from pipeline.profiles import PARAMS, Profiles

WORKING_TREE = "."
NOT_RUN = "not run"


@dataclass(frozen=True)
class Answer:
    """A row of a scorecard. `value` is our number for the claim; None if we have none.

    Attributes:
        sd: standard deviation over `n` repetitions (mostly seeds), in the number's unit; 0 if n is 1. If
            `standard_error` is true, it is the standard error of the mean instead.
        verdict: the row's field `judged`. Where this differs from the row's field `verdict`, the page shows both.
        items: names `<stage>/<item>` of the results that the number rests on.
        made_by: two texts: the commits that made these results, and the hashes of their settings, joined by commas.
        runs: ids of the tracked runs that made these results.
    """

    claim: str
    value: float | None
    sd: float
    n: int
    verdict: str
    items: tuple[str, ...] = ()
    made_by: tuple[str, str] = ("", "")
    runs: tuple[str, ...] = ()
    device: str = ""
    standard_error: bool = False


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        params: parameters, nested as in `params.yaml`.
        answers: the rows of the scorecard by the claim's id, in the scorecard's order.
        tree: the files that the side was read from.
    """

    profile: str
    params: Mapping[str, Any]
    answers: Mapping[str, Answer]
    tree: "Tree"


@dataclass(frozen=True)
class Tree:
    """The repository's files, either in the working tree `root` (`commit` is None) or at a commit."""

    root: Path
    name: str
    commit: str | None = None

    def read(self, path: str) -> str | None:
        """The text of a file, or None if there is no such file. Bytes that are not UTF-8 are replaced (by U+FFFD)."""
        if self.commit is None:
            file = self.root / path
            return file.read_text(encoding="utf-8", errors="replace") if file.exists() else None
        command = ["git", "-C", str(self.root), "show", f"{self.commit}:./{path}"]
        shown = subprocess.run(command, capture_output=True, check=False)
        return shown.stdout.decode(errors="replace") if shown.returncode == 0 else None

    def params(self, profile: str = "") -> dict[str, Any]:
        """The parameters of `profile`; if it is empty, of the current profile. Raises `UserError` if there are none."""
        values = self._params(PARAMS)
        if not isinstance(values.get("profile"), str):
            raise UserError(f"{self.name} has no {PARAMS} that names its profile")
        if profile in ("", values["profile"]):
            return values
        if not (values := self._params(f"profiles/{profile}/{PARAMS}")):
            raise UserError(f"{self.name} has no profile '{profile}'")
        return values

    def _params(self, path: str) -> dict[str, Any]:
        values = parse_yaml(self.read(path) or "", f"{self.name}:{path}")
        return values if isinstance(values, dict) else {}


def load_sides(root: Path, words: Sequence[str], profile: str | None = None) -> list[Side]:
    """The sides named by `words`. A word is a profile, a Git revision, a DVC experiment, or `.` (working tree).

    Args:
        profile: the profile of each side whose word does not name a profile. By default, it is the current profile of
            the last of these sides.

    Raises:
        UserError: a word is unknown or ambiguous, a side lacks the profile or its scorecard, or a file is damaged.
    """
    choices = [_choose(root, word) for word in words]
    open_ones = [tree for tree, named in choices if named is None]
    chosen = profile or (open_ones[-1].params()["profile"] if open_ones else "")
    return [_load(tree, named or chosen) for tree, named in choices]


def _load(tree: Tree, profile: str) -> Side:
    params, path = tree.params(profile), f"reports/{profile}/scorecard.json"
    if (text := tree.read(path)) is None:
        advice = "run `make repro`" if tree.commit is None else "compare with a commit that has one"
        raise UserError(f"{tree.name} has no {path}: {advice}, or choose another profile by --profile")
    try:
        answers = {row["id"]: _answer(row) for row in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:  # for example, Git left conflict markers in the file
        raise UserError(f"{path} of {tree.name} is not a scorecard: {error}") from None
    return Side(profile, params, answers, tree)


def _answer(row: Mapping[str, Any]) -> Answer:
    made = row["provenance"]
    return Answer(
        row["claim"],
        **({"value": None, "sd": 0.0, "n": 1} | (row["ours"] or {})),
        verdict=row.get("judged", row["verdict"]),  # older scorecards lack `judged`
        items=tuple(made.get("items", ())),
        made_by=(made.get("commit") or "", made.get("params_hash") or ""),
        runs=tuple(made.get("tracking_runs", ())),
        device=made.get("device") or "",
    )


def _choose(root: Path, word: str) -> tuple[Tree, str | None]:
    """The files that `word` names, and the profile that it names (None if it does not name a profile)."""
    if word == WORKING_TREE:
        return Tree(root, "the working tree"), None
    profiles = [profile.name for profile in Profiles(root).all()]
    commit = _commit(root, word)
    if commit and word in profiles:
        raise UserError(
            f"'{word}' is both a profile and a Git revision: write the revision as a hash, and the profile as "
            f"`. --profile {word}`"
        )
    if commit:
        return Tree(root, word, commit), None
    if word in profiles:
        return Tree(root, f"profile {word}"), word
    raise UserError(
        f"'{word}' is neither a Git revision nor a profile; the profiles are {', '.join(profiles)}. A shallow clone "
        "lacks earlier revisions: `git fetch --unshallow`"
    )


def _commit(root: Path, word: str) -> str | None:
    """The commit that a Git revision or DVC experiment names. None if `word` is neither, or there is no repository."""
    try:
        return str(resolve_rev(SCM(str(root), search_parent_directories=True), word))
    except (SCMError, GitError):  # GitError: the repository has no commit yet
        return None
