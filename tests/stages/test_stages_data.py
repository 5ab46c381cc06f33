"""Download and preprocess: digits, which need no network, and bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.data.datasets import load_dataset
from pipeline.files import sha256
from pipeline.profiles import Profiles
from stages import download, preprocess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    folder.mkdir()
    shutil.copy(Profiles(ROOT).params_path("quick"), folder / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", folder)
    return folder


def run(root: Path, stage: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"stages.{stage}", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_digits_go_all_the_way_and_come_out_the_same_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    download.main("digits")
    preprocess.main("digits")
    assert "digits (scikit-learn): 1,200 train, 237 validation, 360 test" in capsys.readouterr().out
    data, picture = root / "data/processed/digits.npz", root / "reports/quick/previews/digits.png"
    assert load_dataset(data).label == "digits (scikit-learn)"
    assert picture.read_bytes().startswith(b"\x89PNG")
    events = [
        json.loads(line)
        for path in (root / ".tracking").glob("*/events.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [event["sha256"] for event in events if event["event"] == "dataset"] == [sha256(data)]
    assert sum(event["event"] == "artifact" and event["file"].endswith("digits.png") for event in events) == 1

    before = data.read_bytes(), picture.read_bytes()
    preprocess.main("digits")
    assert (data.read_bytes(), picture.read_bytes()) == before


def test_no_network_is_one_message_and_exit_code_1(root: Path) -> None:
    """Every connection goes to a proxy that is not there."""
    values = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump(values | {"sources": ["digits", "mnist", "toys"]}))
    dead = "http://127.0.0.1:9"
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), dead)
    told = run(root, "download", "mnist", **proxies, NO_PROXY="", no_proxy="")
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    assert "No server could be reached: is there a network?" in told.stderr
    assert "CAPSULES_MIRROR" in told.stderr
    assert list((root / "data/raw/mnist").iterdir()) == []


def test_preprocess_without_download_says_what_to_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    with pytest.raises(SystemExit) as caught:
        preprocess.main("digits")
    assert caught.value.code == 1
    assert "digits.csv.gz is missing: run the download stage" in capsys.readouterr().err
    assert not (root / "data/processed").exists()


def test_an_unknown_source_is_refused_with_code_2(root: Path) -> None:
    told = run(root, "download", "mnistt")
    assert told.returncode == 2
    assert "digits" in told.stderr
