"""Download and preprocess: digits, which need no network, and bad input."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import pipeline
from PIL import Image
from records import tracked_events

from pipeline.data.datasets import load_dataset
from pipeline.files import sha256
from stages import download, own_images, preprocess, study, train

ROOT = Path(__file__).parents[2]


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
    events = tracked_events(root / ".tracking")
    assert [event["sha256"] for event in events if event["event"] == "dataset"] == [sha256(data)]
    assert sum(event["event"] == "artifact" and event["file"].endswith("digits.png") for event in events) == 1

    before = data.read_bytes(), picture.read_bytes()
    preprocess.main("digits")
    assert (data.read_bytes(), picture.read_bytes()) == before


def test_preprocess_without_its_source_says_what_to_run(walked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for item, told in (("digits", "run the download stage"), ("photos", "run the own_images stage")):
        with pytest.raises(SystemExit) as caught:
            preprocess.main(item)
        assert caught.value.code == 1
        assert told in capsys.readouterr().err
    assert not (walked / "data/processed").exists()


EXAMPLE = (ROOT / "docs" / "own-images.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the first command of docs/own-images.md was run."""
    folder = tmp_path_factory.mktemp("example")
    (command,) = re.findall(r"^    python (scripts/.+)$", EXAMPLE, re.MULTILINE)
    script, *arguments = command.split()
    subprocess.run([sys.executable, str(ROOT / script), *arguments], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def walked(root: Path, written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example of docs/own-images.md, up to what it adds to params.yaml."""
    shutil.copytree(written, root, dirs_exist_ok=True)
    (example,) = re.findall(r"```yaml\n(.+?)```", EXAMPLE, re.DOTALL)
    values = yaml.safe_load((root / "params.yaml").read_text())
    for section, entries in yaml.safe_load(example).items():
        values[section] |= entries
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(root)
    return root


def test_the_example_of_own_images_can_be_followed(
    walked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pipe := walked / "data/own/photos/flower/pipe.png")
    assert pipeline(monkeypatch, "check") == 2, "DVC would wait at it for ever"
    assert "pipe.png' is neither a file nor a folder" in capsys.readouterr().err
    pipe.unlink()
    assert pipeline(monkeypatch, "check") == 0
    own_images.main("photos")
    assert "photos: 520 images of 2 classes" in capsys.readouterr().out
    preprocess.main("photos")
    assert "photos (own images): 320 train, 80 validation, 120 test" in capsys.readouterr().out
    built = load_dataset(walked / "data/processed/photos.npz")
    assert built.images.shape == (520, 3, 32, 32)
    assert built.classes == ("temple", "flower")
    original = Image.open(walked / "data/own/photos/flower/007.png")
    np.testing.assert_array_equal(built.images[267], np.asarray(original).transpose(2, 0, 1))
    assert (walked / "reports/quick/previews/photos.png").exists()

    train.main("cnn-photos")
    study.main("evaluate", "cnn-photos")
    record = json.loads((walked / "reports/quick/results/evaluate/cnn-photos.json").read_text())
    assert record["test"]["centre"] < 5, "percent; a coin has 50"
    settings = record["record"][0]["provenance"][-1]["settings"]
    assert settings["own_images"]["photos"]["classes"] == ["temple", "flower"]


def test_a_damaged_image_ends_the_stage_and_a_changed_folder_gives_other_data(
    walked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (walked / "data/raw").rglob("*") if path.is_file()}

    own_images.main("photos")
    before = made()
    changed = walked / "data/own/photos/flower/100.png"
    changed.write_bytes(changed.read_bytes()[:900])
    with pytest.raises(SystemExit) as caught:
        own_images.main("photos")
    assert caught.value.code == 1
    assert f"{changed} cannot be read (" in capsys.readouterr().err
    assert made() == before
    changed.unlink()
    own_images.main("photos")
    assert made() != before
