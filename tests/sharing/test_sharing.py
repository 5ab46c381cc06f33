"""Results pushed by one clone and pulled by another, over every kind of remote that the documentation names.

A small repository of three stages stands for the pipeline: a folder and an array in DVC's cache, numbers in Git.
"""

from __future__ import annotations

import gc
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from clones import Clone, executed, restored
from remotes import Remote

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

TRAIN = """\
from pathlib import Path
rate = Path("rate.txt").read_text()
Path("weights").mkdir()
Path("weights/seed-0").write_text("a" * 1000)
Path("weights/seed-1").write_text(rate)
"""
MEASURE = """\
from pathlib import Path
Path("numbers.json").write_text('{"accuracy": %s}' % Path("weights/seed-1").read_text().strip())
"""
DRAW = """\
from pathlib import Path
Path("page.html").write_text("<p>" + Path("numbers.json").read_text())
"""
STAGES = {
    "train": {"cmd": "python train.py", "deps": ["train.py", "rate.txt"], "outs": ["weights"]},
    "measure": {
        "cmd": "python measure.py",
        "deps": ["measure.py", "weights"],
        "metrics": [{"numbers.json": {"cache": False}}],
    },
    "draw": {"cmd": "python draw.py", "deps": ["draw.py", "numbers.json"], "outs": ["page.html"]},
}
SEED_0 = "files/md5/ca/be45dcc9ae5b66ba86600cca6b8ba8"
"""Where DVC keeps the content of `weights/seed-0`."""

SHARE = "from pathlib import Path; from pipeline.operations.share import share; print(share(Path()))"

WRITABLE = ("folder", "s3", "ssh")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The clone in which everything was run, at the rate 1; before that, at the rate 2."""
    clone = Clone(tmp_path_factory.mktemp("a team") / "first")
    clone.folder.mkdir()
    for name, content in (("train.py", TRAIN), ("measure.py", MEASURE), ("draw.py", DRAW)):
        (clone.folder / name).write_text(content)
    (clone.folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    clone.run("git", "init", "-q")
    clone.run("dvc", "init", "-q")
    for rate in ("2", "1"):
        (clone.folder / "rate.txt").write_text(f"{rate}\n")
        assert executed(clone.run("dvc", "repro")) == list(STAGES)
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "results")
    return clone


def connect(clone: Clone, remote: Remote, **settings: str) -> None:
    """What `dvc remote add --local -d team URL` and `dvc remote modify --local team KEY VALUE` write."""
    values = {"url": remote.url, **remote.local, **settings}
    lines = ["[core]", "remote = team", "['remote \"team\"']", *(f"{key} = {value}" for key, value in values.items())]
    (clone.folder / ".dvc" / "config.local").write_text("\n".join(lines) + "\n")


def another(first: Clone, folder: Path, remote: Remote, **settings: str) -> Clone:
    """A clean clone that knows the remote."""
    clone = Clone(folder / "second")
    first.run("git", "clone", "-q", ".", str(clone.folder))
    connect(clone, remote, **settings)
    return clone


@pytest.fixture(scope="module")
def pushed(first: Clone) -> dict[str, Remote]:
    """The remotes that have the results already."""
    return {}


def push(first: Clone, name: str, request: pytest.FixtureRequest, pushed: dict[str, Remote]) -> Remote:
    """A remote, to which everything has been pushed."""
    remote: Remote = request.getfixturevalue(name)
    if name not in pushed:
        through = request.getfixturevalue("folder") if name == "web" else remote
        connect(first, through)
        first.run("dvc", "push", "--run-cache", **through.environment)
        pushed[name] = remote
    return remote


@pytest.mark.parametrize("name", [*WRITABLE, "web"])
def test_a_clean_clone_that_pulls_runs_nothing_and_has_the_page(
    name: str, first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = push(first, name, request, pushed)
    clone = another(first, tmp_path, remote)
    clone.run("dvc", "pull", **remote.environment)
    assert (clone.folder / "page.html").read_text() == '<p>{"accuracy": 1}'
    output = clone.run("dvc", "repro")
    assert executed(output) == restored(output) == []
    assert "Data and pipelines are up to date." in output
    assert clone.run("git", "status", "--porcelain") == ""
    for secret in (*remote.local.values(), *remote.environment.values(), remote.url):
        assert secret not in clone.run("git", "grep", "-h", "", "--", ".dvc")


def test_without_a_lock_the_run_cache_restores_only_what_dvc_pushes(
    first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Numbers that are kept in Git are not pushed: `measure` has to run again, as every stage of the pipeline would."""
    clone = another(first, tmp_path, push(first, "folder", request, pushed))
    (clone.folder / "dvc.lock").unlink()
    output = clone.run("dvc", "repro", "--pull")
    assert (executed(output), restored(output)) == (["measure"], ["train", "draw"])


@pytest.mark.parametrize("name", WRITABLE)
def test_after_sharing_the_run_cache_restores_everything(
    name: str, first: Clone, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The rate 2 is in no commit: only the run cache knows its outputs."""
    remote: Remote = request.getfixturevalue(name)
    connect(first, remote)
    assert "(6, " in first.run(sys.executable, "-c", SHARE, PYTHONPATH=str(ROOT), **remote.environment)
    clone = another(first, tmp_path, remote)
    (clone.folder / "rate.txt").write_text("2\n")
    output = clone.run("dvc", "repro", "--pull", **remote.environment)
    assert (executed(output), restored(output)) == ([], list(STAGES))
    assert (clone.folder / "page.html").read_text() == '<p>{"accuracy": 2}'


def test_over_http_there_is_no_run_cache_and_no_push(
    first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = push(first, "web", request, pushed)
    clone = another(first, tmp_path, remote)
    assert executed(clone.run("dvc", "repro", "--pull", "--allow-missing")) == [], "what the lock names can be pulled"
    (clone.folder / "dvc.lock").unlink()
    output = clone.run("dvc", "repro", "--pull", "--force")
    assert "run-cache is not supported for http" in output
    assert executed(output) == list(STAGES)
    (clone.folder / "rate.txt").write_text("3\n")
    clone.run("dvc", "repro", "-q")
    code, output = clone.attempt("dvc", "push")
    assert code == 1
    assert "501, message=\"Unsupported method ('POST')\"" in output
    assert re.search(r"failed to push data to the cloud - \d files failed to upload", output)


def test_work_goes_both_ways_through_a_folder(
    first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = push(first, "folder", request, pushed)
    second = another(first, tmp_path, remote)
    (second.folder / "rate.txt").write_text("5\n")
    assert executed(second.run("dvc", "repro")) == list(STAGES)
    second.run("git", "commit", "-qam", "another rate")
    second.run("dvc", "push")
    back = another(second, tmp_path / "back", remote)
    back.run("dvc", "pull")
    assert (back.folder / "page.html").read_text() == '<p>{"accuracy": 5}'
    assert executed(back.run("dvc", "repro")) == []


@contextmanager
def damaged(remote: Remote) -> Iterator[None]:
    """One byte of an object is another one for a while."""
    good = remote.read(SEED_0)
    remote.write(SEED_0, b"b" + good[1:])
    try:
        yield
    finally:
        remote.write(SEED_0, good)


@pytest.mark.parametrize("name", ["folder", "s3", "web"])
def test_a_damaged_object_is_noticed_with_verify_only(
    name: str, first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = push(first, name, request, pushed)
    with damaged(remote):
        trusting = another(first, tmp_path / "trusting", remote)
        trusting.run("dvc", "pull", **remote.environment)
        assert (trusting.folder / "weights/seed-0").read_bytes()[:2] == b"ba", "nobody was told"
        careful = another(first, tmp_path / "careful", remote, verify="true")
        code, output = careful.attempt("dvc", "pull", **remote.environment)
        assert code == 1
        assert "failed to pull data from the cloud - Checkout failed for following targets:\nweights" in output
        assert (careful.folder / "page.html").exists(), "what is whole comes"
        assert not (careful.folder / "weights").exists()


def test_a_damaged_object_is_pushed_again_after_it_and_its_folder_are_deleted(first: Clone, tmp_path: Path) -> None:
    """DVC takes a folder that is on the remote for all of its files, and never looks into a file that is there."""
    remote = Remote(str(tmp_path), objects=tmp_path)
    connect(first, remote)
    first.run("dvc", "push", "-q", "weights")
    good = remote.read(SEED_0)
    remote.write(SEED_0, b"damaged")
    assert "Everything is up to date." in first.run("dvc", "push", "weights")
    remote.delete(SEED_0)
    assert "Everything is up to date." in first.run("dvc", "push", "weights")
    (listing,) = tmp_path.rglob("*.dir")
    listing.unlink()
    assert "2 files pushed" in first.run("dvc", "push", "weights")
    assert remote.read(SEED_0) == good


def modes(folder: Path) -> set[str]:
    """The rights on the folders below a folder, as `ls` writes them."""
    return {stat.filemode(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()}


@pytest.mark.parametrize(
    ("umask", "settings", "files", "runs"),
    [
        ("022", {"shared": "group"}, "drwxrwsr-x", "drwxr-sr-x"),
        ("002", {}, "drwxrwxr-x", "drwxrwsr-x"),
        ("002", {"shared": "group"}, "drwxrwsr-x", "drwxrwsr-x"),
    ],
)
def test_a_group_can_write_only_with_both_the_umask_and_the_setting(
    umask: str, settings: dict[str, str], files: str, runs: str, first: Clone, tmp_path: Path
) -> None:
    """With the setting alone the run cache is one person's; with the umask alone new folders lose the group."""
    tmp_path.chmod(0o2775)
    connect(first, Remote(str(tmp_path)), **settings)
    first.run("sh", "-c", f"umask {umask} && python -m dvc push -q --run-cache")
    assert modes(tmp_path / "files") == {files}
    assert modes(tmp_path / "runs") == {runs}


def test_one_cache_for_all_on_a_machine_holds_every_file_once(
    first: Clone, pushed: dict[str, Remote], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """And what was run in one clone is restored in another one, though nothing was pushed or committed."""
    remote = push(first, "folder", request, pushed)
    second, third = another(first, tmp_path, remote), another(first, tmp_path / "third", remote)
    for clone in (second, third):
        with (clone.folder / ".dvc" / "config.local").open("a") as config:
            config.write(f"[cache]\ndir = {tmp_path / 'cache'}\nshared = group\ntype = symlink\n")
    second.run("dvc", "pull", "-q")
    assert (second.folder / "weights/seed-0").resolve() == tmp_path / "cache" / SEED_0
    assert modes(tmp_path / "cache") == {"drwxrwsr-x"}
    for clone in (second, third):
        (clone.folder / "rate.txt").write_text("8\n")
    assert executed(second.run("dvc", "repro")) == list(STAGES)
    output = third.run("dvc", "repro")
    assert (executed(output), restored(output)) == ([], list(STAGES))


def test_named_targets_alone_are_pushed(first: Clone, tmp_path: Path) -> None:
    """For a remote that the public can read: no raw data by oversight."""
    connect(first, Remote(str(tmp_path / "public")))
    assert "3 files pushed" in first.run("dvc", "push", "--glob", "weig*")
    assert not (tmp_path / "public" / "runs").exists()


# DVC drops its index of a remote open after a push, in a cycle: it goes here, not in some later test.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_sharing_leaves_out_what_it_is_told_and_says_what_is_wrong(first: Clone, tmp_path: Path) -> None:
    from pipeline.errors import UserError
    from pipeline.operations.share import share

    connect(first, Remote(str(tmp_path / "remote")))
    assert share(first.folder, "team", without=["weights", "page.html"])[1] == 2, "numbers at both rates"
    assert not (tmp_path / "remote" / SEED_0).exists()
    with pytest.raises(UserError, match="remote 'nowhere' doesn't exist"):
        share(first.folder, "nowhere")
    (first.folder / ".dvc" / "config.local").unlink()
    with pytest.raises(UserError, match="no remote specified"):
        share(first.folder)
    connect(first, Remote(str(first.folder / "published")))
    for remote in ("team", None):
        with pytest.raises(UserError, match="published/ is in Git"):
            share(first.folder, remote)
    assert not (first.folder / "published").exists()
    connect(first, Remote("http://127.0.0.1:9"))
    with pytest.raises(UserError, match="run-cache is not supported for http"):
        share(first.folder)
    gc.collect()
