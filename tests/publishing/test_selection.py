"""What is published of a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pipeline.publishing.publish import _overview, _rows, _write_cards
from pipeline.publishing.selection import Output, PublishingError, Selection, outputs, select, stored, unused
from pipeline.results.reading import Results

MODEL = Output("train/a", "models/a", "0123456789.dir", 300)


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_models_and_arrays_of_the_lock_are_outputs_and_data_and_reports_are_not(tmp_path: Path) -> None:
    lock = {
        "stages": {
            "download@digits": {"cmd": "x", "outs": [{"path": "data/raw/digits", "md5": "1.dir", "size": 5}]},
            "train@a": {
                "cmd": "x",
                "outs": [
                    {"path": "models/a", "md5": "0123456789.dir", "size": 300},
                    {"path": "reports/quick/results/train/a.json", "md5": "2", "size": 7},
                ],
            },
            "figures": {"cmd": "x"},
        }
    }
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert outputs(tmp_path / "dvc.lock") == [MODEL]
    assert outputs(tmp_path / "none.lock") == []


@pytest.mark.parametrize("content", ["- 1", "stages: {a: {outs: [{path: models/x}]}}", "a: ["])
def test_a_damaged_lock_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "dvc.lock").write_text(content)
    with pytest.raises(PublishingError, match=r"cannot read .*dvc\.lock"):
        outputs(tmp_path / "dvc.lock")


def test_only_what_is_recorded_and_small_is_chosen(tmp_path: Path) -> None:
    write(tmp_path / "models/a/seed-0.safetensors", 200)
    write(tmp_path / "models/a/model.json", 100)
    write(tmp_path / "models/large/seed-0.safetensors", 1001)
    write(tmp_path / "results/x/e/arrays.npz", 1000)
    found = [
        MODEL,
        Output("train/large", "models/large", "2.dir", 1001),
        Output("evaluate/e", "results/x/e", "3.dir", 1000),
        Output("train/draft", "models/draft", "4.dir", 1),
        Output("train/elsewhere", "models/elsewhere", "5.dir", 1),
    ]
    recorded = {"train/a", "train/large", "evaluate/e", "train/elsewhere"}
    selection = select(tmp_path, found, recorded, largest_file=1000)
    assert [output.path for output in selection.chosen] == ["models/a", "results/x/e"]
    assert selection.size == 1300
    assert selection.left_out.keys() == {"models/large", "models/draft", "models/elsewhere"}
    assert "its files were not kept" in selection.left_out["models/elsewhere"]
    assert "draft" in selection.left_out["models/draft"]


def test_too_much_in_all_is_refused_and_the_largest_are_named(tmp_path: Path) -> None:
    write(tmp_path / "models/a/seed-0.safetensors", 300)
    with pytest.raises(PublishingError, match=r"models/a \(0\.0 MB\)"):
        select(tmp_path, [MODEL], {"train/a"}, largest_total=299)
    assert select(tmp_path, [MODEL], {"train/a"}, largest_total=300).chosen == [MODEL]


def published(root: Path, md5: str, files: list[str]) -> None:
    """An output in the remote, a folder with `files` given by their hashes."""
    remote = root / "published"
    listing = stored(remote, md5)
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text(json.dumps([{"md5": each, "relpath": each} for each in files]))
    for each in files:
        write(stored(remote, each), 10)


def test_what_was_published_from_another_machine_stays(tmp_path: Path) -> None:
    published(tmp_path, MODEL.md5, ["abcd", "ef01"])
    assert select(tmp_path, [MODEL], {"train/a"}).chosen == [MODEL]
    stored(tmp_path / "published", "ef01").unlink()
    assert select(tmp_path, [MODEL], {"train/a"}).chosen == []


def test_cards_of_runs_in_any_profile_stay_and_are_listed(tmp_path: Path) -> None:
    for run in ("a", "b", "gone"):
        write(tmp_path / f"published/cards/{run}.md", 1)
    elsewhere = Output("train/b", "models/b", "1.dir", 1)
    found = _write_cards(tmp_path, Results(tmp_path, tmp_path), "quick", [MODEL], [MODEL, elsewhere])
    assert found == ["a", "b"]
    text = "\n".join(_overview("quick", Selection([MODEL], {}), found))
    assert "| [a](cards/a.md) | 0.00 |" in text
    assert "Of other profiles: [b](cards/b.md)." in text


def test_what_no_output_names_is_unused(tmp_path: Path) -> None:
    published(tmp_path, MODEL.md5, ["abcd", "ef01"])
    published(tmp_path, "9876543210.dir", ["abcd", "beef"])
    remote = tmp_path / "published"
    assert unused(remote, [MODEL]) == sorted([stored(remote, "9876543210.dir"), stored(remote, "beef")])
    assert unused(tmp_path / "nothing", [MODEL]) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000], ids=["empty", "cut", "no text", "nested"])
def test_a_corrupt_scorecard_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "scorecard.json").write_bytes(content)
    with pytest.raises(PublishingError, match=r"scorecard\.json is corrupt"):
        _rows(tmp_path / "scorecard.json")


@pytest.mark.parametrize("content", ["{", '["beef"]', '[{"relpath": "a"}]'])
def test_a_corrupt_list_of_published_files_is_named(tmp_path: Path, content: str) -> None:
    listing = stored(tmp_path, MODEL.md5)
    listing.parent.mkdir(parents=True)
    listing.write_text(content)
    with pytest.raises(PublishingError, match=f"{listing.name} is corrupt"):
        unused(tmp_path, [MODEL])
