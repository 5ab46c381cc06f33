"""What is in the remote of published outputs: complete outputs, small enough, of a commit; in a repository of two
stages.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from clones import Clone

from pipeline.errors import UserError
from pipeline.operations import publish as publishing
from pipeline.operations.publish import publish, push, stored
from pipeline.profiles import Profiles
from pipeline.state import outputs

ROOT = Path(__file__).parents[2]
MAKE = "mkdir -p models/{0} && echo {0}-0 > models/{0}/seed-0 && echo {0}-1 > models/{0}/seed-1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The repository after `dvc repro`, committed, with nothing published."""
    clone = Clone(tmp_path_factory.mktemp("publishing") / "made")
    clone.folder.mkdir()
    stages = {name: {"cmd": MAKE.format(name), "outs": [f"models/{name}"]} for name in ("a", "b")}
    (clone.folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    clone.init()
    (clone.folder / ".dvc/config").write_text("['remote \"published\"']\nurl = ../published\n")
    clone.run("dvc", "repro", "-q")
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "made")
    return clone


@pytest.fixture
def clone(made: Clone, tmp_path: Path) -> Clone:
    """A copy of it, with its cache."""
    shutil.copytree(made.folder, tmp_path / "clone")
    return Clone(tmp_path / "clone")


def forget(clone: Clone) -> None:
    """Remove what was made, as in a clone on another machine."""
    shutil.rmtree(clone.folder / ".dvc/cache")
    shutil.rmtree(clone.folder / "models")


def test_what_is_pushed_is_all_that_lies_there_and_can_be_pulled(clone: Clone) -> None:
    a, b = outputs(clone.folder / "dvc.lock")
    assert push(clone.folder, [a, b], [a, b]) == {}
    assert push(clone.folder, [a], [a]) == {}
    there = {path for path in (clone.folder / "published").rglob("*") if path.is_file()}
    assert there == set(stored(clone.folder, a))
    forget(clone)
    clone.run("dvc", "pull", "-q", "--allow-missing", "-r", "published")
    assert (clone.folder / "models/a/seed-1").read_text() == "a-1\n"
    assert not (clone.folder / "models/b").exists()


def test_an_incomplete_output_is_pushed_again_or_named_and_does_not_stop_others_from_being_pulled(clone: Clone) -> None:
    a, b = outputs(clone.folder / "dvc.lock")
    push(clone.folder, [a, b], [a, b])

    def harm(damage: str) -> None:
        path = stored(clone.folder, a)[1]
        path.unlink()
        if damage == "damaged":
            path.write_text("b-1\n")
        with pytest.raises(UserError, match=f"published/files/md5/.* is {damage}"):
            stored(clone.folder, a)

    harm("missing")
    assert push(clone.folder, [a, b], [a, b]) == {}
    harm("damaged")
    forget(clone)
    assert "damaged" in push(clone.folder, [a, b], [a, b])[a]
    clone.run("dvc", "pull", "-q", "--allow-missing", "-r", "published")
    assert (clone.folder / "models/b/seed-0").exists()


def test_large_files_are_left_out_and_too_much_in_all_is_refused(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = outputs(clone.folder / "dvc.lock")
    with (clone.folder / "dvc.yaml").open("a") as file:
        file.write("  c: {cmd: 'mkdir models/c && yes | head -c 20001000 > models/c/seed-0', outs: [models/c]}\n")
    clone.run("dvc", "repro", "-q", "c")
    *_, c = outputs(clone.folder / "dvc.lock")
    assert push(clone.folder, [a, b, c], [a, b, c]) == {c: "it has a file of 20.00 MB (limit: 20 MB)"}
    monkeypatch.setattr(publishing, "LARGEST_TOTAL", 100)
    with pytest.raises(UserError, match="git clean -fd published"):
        push(clone.folder, [a, b], [a, b])


def test_only_a_commit_of_a_profile_for_publication_is_published(clone: Clone) -> None:
    """What publishing left there and a switch of the profile are no changes."""
    quick = Profiles(ROOT).params_path("quick").read_text()
    for folder, content in ((".", "profile: other\n"), ("profiles/quick", quick)):
        (clone.folder / folder).mkdir(parents=True, exist_ok=True)
        (clone.folder / folder / "params.yaml").write_text(content)
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "parameters")
    clone.run("git", "mv", "-f", "profiles/quick/params.yaml", "params.yaml")
    (clone.folder / "published").mkdir()
    (clone.folder / "published/README.md").touch()
    with pytest.raises(UserError, match="profile quick has `publish: false`"):
        publish(clone.folder)
    (clone.folder / "params.yaml").write_text(quick.replace("publish: false", "publish: true"))
    for name in ("dvc.lock", "new.py"):
        with (clone.folder / name).open("a") as file:
            file.write("# changed\n")
    with pytest.raises(UserError, match=r"uncommitted changes[^`]*new\.py\n M dvc\.lock\n M params\.yaml"):
        publish(clone.folder)
    shutil.rmtree(clone.folder / ".git")
    with pytest.raises(UserError, match="not a git repository"):
        publish(clone.folder)
