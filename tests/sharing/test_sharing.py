"""Results pushed by one clone and pulled by another, over S3 and to a folder.

A small repository of three stages stands for the pipeline: a folder and an array in DVC's cache, numbers in Git.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from clones import Clone, executed, restored
from servers import free_port, serving

from pipeline.errors import UserError
from pipeline.operations.publish import share

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

STAGES = {
    "train": {
        "cmd": "mkdir weights && echo one > weights/seed-0 && cp rate.txt weights/seed-1",
        "deps": ["rate.txt"],
        "outs": ["weights"],
    },
    "measure": {
        "cmd": "cp weights/seed-1 rate.json",
        "deps": ["weights"],
        "metrics": [{"rate.json": {"cache": False}}],
    },
    "draw": {"cmd": "cp rate.json page.html", "deps": ["rate.json"], "outs": ["page.html"]},
}
S3_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
SEED_0 = "files/md5/5b/bf5a52328e7439ae6e719dfe712200"
"""Where DVC keeps the content of `weights/seed-0`."""

SHARE = "from pathlib import Path; from pipeline.operations.publish import share; print(share(Path()))"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The clone in which everything was run, at the rate 1; before that, at the rate 2."""
    clone = Clone(tmp_path_factory.mktemp("a team") / "first")
    clone.folder.mkdir()
    (clone.folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    clone.init()
    for rate in ("2", "1"):
        (clone.folder / "rate.txt").write_text(f"{rate}\n")
        assert executed(clone.run("dvc", "repro")) == list(STAGES)
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "results")
    return clone


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a bucket of an S3-like store (moto's)."""
    for package, extra in (("dvc_s3", "sharing"), ("moto", "dev")):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[{extra}]'")
    import boto3

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port, tmp_path / "moto.log"):
        address = f"http://127.0.0.1:{port}"
        keys = {name.lower(): value for name, value in S3_CREDENTIALS.items() if "KEY" in name}
        client = boto3.client("s3", endpoint_url=address, region_name=S3_CREDENTIALS["AWS_DEFAULT_REGION"], **keys)
        client.create_bucket(Bucket="team")
        yield {"url": "s3://team/capsules", "endpointurl": address}


def connect(clone: Clone, **settings: str) -> None:
    """What `dvc remote add --local -d team URL` and `dvc remote modify --local team KEY VALUE` write."""
    lines = ["[core]", "remote = team", "['remote \"team\"']", *(f"{key} = {value}" for key, value in settings.items())]
    (clone.folder / ".dvc" / "config.local").write_text("\n".join(lines) + "\n")


def test_a_clean_clone_that_pulls_what_is_shared_runs_nothing_and_has_the_page(
    s3: dict[str, str], first: Clone, tmp_path: Path
) -> None:
    """The rate 2 is in no commit: only the run cache knows its outputs."""
    connect(first, **s3)
    assert "(6, " in first.run(sys.executable, "-c", SHARE, PYTHONPATH=str(ROOT), **S3_CREDENTIALS)
    clone = Clone(tmp_path / "second")
    first.run("git", "clone", "-q", ".", str(clone.folder))
    connect(clone, **s3)
    clone.run("dvc", "pull", **S3_CREDENTIALS)
    assert (clone.folder / "page.html").read_text() == "1\n"
    output = clone.run("dvc", "repro")
    assert executed(output) == restored(output) == []
    assert clone.run("git", "status", "--porcelain") == ""
    for secret in (*s3.values(), *S3_CREDENTIALS.values()):
        assert secret not in clone.run("git", "grep", "-h", "", "--", ".dvc")
    (clone.folder / "rate.txt").write_text("2\n")
    output = clone.run("dvc", "repro", "--pull", **S3_CREDENTIALS)
    assert (executed(output), restored(output)) == ([], list(STAGES))
    assert (clone.folder / "page.html").read_text() == "2\n"


# DVC drops its index of a remote open after a push, in a cycle: it goes here, not in some later test.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_sharing_leaves_out_what_it_is_told_and_says_what_is_wrong(first: Clone, tmp_path: Path) -> None:
    connect(first, url=str(tmp_path / "remote"))
    for place in ("wieghts", "weights/seed", str(first.folder / "weights")):
        with pytest.raises(UserError, match="no stage has an output at or below"):
            share(first.folder, "team", without=[place])
    assert share(first.folder, "team", without=["weights", "page.html"])[1] == 2, "numbers at both rates"
    assert not (tmp_path / "remote" / SEED_0).exists()
    with pytest.raises(UserError, match="remote 'nowhere' doesn't exist"):
        share(first.folder, "nowhere")
    (first.folder / ".dvc" / "config.local").unlink()
    with pytest.raises(UserError, match="no remote specified"):
        share(first.folder)
    connect(first, url=str(first.folder / "published"))
    for remote in ("team", None):
        with pytest.raises(UserError, match="published/ is in Git"):
            share(first.folder, remote)
    assert not (first.folder / "published").exists()
    connect(first, url="http://127.0.0.1:9")
    with pytest.raises(UserError, match="run-cache is not supported for http"):
        share(first.folder)
    gc.collect()
