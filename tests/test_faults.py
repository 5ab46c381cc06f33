"""The fault campaign's own parts: that damage is done, that a difference is seen, that only messages are followed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.faults import campaign, files
from benchmarks.faults.campaign import ADVISED, DIFFERING, LOST, SURVIVED, Case, Fault
from benchmarks.faults.contents import contents, differences
from benchmarks.faults.repository import TARGETS, Repository


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Files such as stages write."""
    folder = tmp_path / "a repository"
    for name, content in {
        "models/run/seed-0.safetensors": b"weights",
        "results/quick/evaluate/run/examples.npz": b"arrays",
        "reports/quick/results/train/run.json": b'{"loss": 1.0, "record": {"created": "today"}}',
        "reports/quick/results/train/run.csv": b"epoch,loss,images_per_second\n1,1.0,5\n",
        "dvc.lock": b"schema: '2.0'\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_contents_leave_out_times_and_nothing_else(finished: Path) -> None:
    before = contents(finished)
    record, table = (finished / f"reports/quick/results/train/run.{kind}" for kind in ("json", "csv"))
    record.write_text('{"loss": 1.0, "record": {"created": "tomorrow"}}')
    table.write_text("epoch,loss,images_per_second\n1,1.0,7\n")
    assert differences(finished, before) == []
    record.write_text('{"loss": 1.0000001, "record": {}}')
    table.write_text("epoch,loss,images_per_second\n1,1.5,5\n")
    (finished / "models/run/left-over.tmp").touch()
    (finished / "results/quick/evaluate/run/examples.npz").unlink()
    assert differences(finished, before) == [
        "models/run/left-over.tmp",
        "reports/quick/results/train/run.csv",
        "reports/quick/results/train/run.json",
        "results/quick/evaluate/run/examples.npz",
    ]


def test_half_a_json_file_differs(finished: Path) -> None:
    before = contents(finished)
    files.cut(finished / "reports/quick/results/train/run.json", random.Random(0))
    assert differences(finished, before) == ["reports/quick/results/train/run.json"]


@pytest.mark.parametrize("seed", range(20))
def test_damage_changes_the_file_and_depends_on_the_seed_only(finished: Path, seed: int) -> None:
    path = finished / "models/run/seed-0.safetensors"
    content = path.read_bytes()
    for damage in (files.cut, files.flip):
        results = []
        for _ in range(2):
            path.write_bytes(content)
            path.chmod(0o444)  # as in DVC's cache
            damage(path, random.Random(seed))
            results.append(path.read_bytes())
        assert results[0] == results[1]
        assert results[0] != content or damage is files.flip  # the same bit twice is no damage
    assert len(results[0]) == len(content)


class Scripted(Repository):
    """A repository whose `dvc repro` answers as written down."""

    doctor = ""

    def __init__(self, work: Path, answers: list[tuple[int, str]], reference: dict[str, str]) -> None:
        super().__init__(work)
        self.answers, self.reference = answers, {TARGETS: reference}

    def begin(self, state: str, folder_exists: bool = False) -> None:
        self.state = state

    def call(self, *words: str, limit: float = 0) -> tuple[int, str]:
        if words[:2] == ("dvc", "status"):
            return 0, "Data and pipelines are up to date."
        if words == ("pipeline", "doctor"):
            return 1, self.doctor
        return self.answers.pop(0) if words[0] == "dvc" else (0, "")


def run(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setitem(campaign.FAULTS, "nothing", Fault("finished", lambda repository, chance: "nothing done"))
    return campaign.run_case(repository, 0, "nothing", random.Random(0))


def test_a_case_that_ends_with_the_same_files_survived(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Scripted(finished.parent, [(0, "")], contents(finished))
    assert run(repository, monkeypatch).outcome == SURVIVED


def test_a_case_that_ends_with_other_files_differs(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Scripted(finished.parent, [(0, "")], contents(finished))
    (finished / "models/run/seed-0.safetensors").write_bytes(b"other")
    case = run(repository, monkeypatch)
    assert (case.outcome, case.differing) == (DIFFERING, ("models/run/seed-0.safetensors",))


def test_a_case_that_cannot_be_finished_is_lost(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Scripted(finished.parent, [(1, "Traceback: what to do is not said")], contents(finished))
    case = run(repository, monkeypatch)
    assert (case.outcome, case.message) == (LOST, "Traceback: what to do is not said")


def test_a_message_that_says_to_delete_a_file_is_followed(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = finished / ".cache/resume/key/checkpoint.safetensors"
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    said = f"> python -m stages.train run\nerror: {damaged} is damaged (too short). Delete it and run again.\n"
    repository = Scripted(finished.parent, [(1, said), (0, "")], contents(finished))
    case = run(repository, monkeypatch)
    assert (case.outcome, case.advice) == (ADVISED, ("a damaged file deleted",))
    assert not damaged.exists()


def test_what_the_doctor_says_is_followed(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = finished / ".dvc/cache/runs/aa/bb/cc"
    record.parent.mkdir(parents=True)
    record.touch()
    repository = Scripted(finished.parent, [(1, "ERROR: failed to reproduce: 'outs'"), (0, "")], contents(finished))
    repository.doctor = f"problem run-cache   0 of 1 records can be read\n{'':20}delete .dvc/cache/runs/aa/bb/cc\n"
    assert run(repository, monkeypatch).outcome == ADVISED
    assert not record.exists()


def test_advice_is_not_followed_without_end(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(1, "ERROR: dvc.lock is invalid")] * 20
    repository = Scripted(finished.parent, answers, contents(finished))
    assert run(repository, monkeypatch).outcome == LOST
    assert len(answers) == 20 - 1 - campaign.MOST_ADVICE


def test_no_file_outside_of_the_campaign_is_deleted(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.touch()
    said = f"error: {other} is damaged. Delete it and run again."
    assert run(Scripted(finished.parent, [(1, said)], {}), monkeypatch).outcome == LOST
    assert other.exists()


def test_the_report_counts_every_case_once() -> None:
    cases = [
        Case(0, "kill", "", SURVIVED),
        Case(1, "kill", "", ADVISED, advice=("a damaged file deleted",)),
        Case(2, "cut", "", DIFFERING, differing=("models/a",)),
        Case(3, "cut", "", LOST, message="why"),
    ]
    found = campaign.report(cases, {"mirror": "none"}, 5, "abc")
    assert [found[name] for name in ("tried", "survived", "with_advice", "differing", "lost")] == [4, 2, 1, 1, 1]
    assert found["by_kind"]["kill"] == {
        "tried": 2, "survived": 1, "survived with advice": 1, "differing": 0, "lost": 0,
    }  # fmt: skip
    assert [each["number"] for each in found["failures"]] == [2, 3]


def test_kinds_that_cannot_be_tried_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(campaign.FAULTS, "disk full", Fault("prepared", files.disk_full, lambda: "no root"))
    chosen, left_out = campaign.possible(["kill one process", "disk full", "mirror"], Repository(tmp_path))
    assert chosen == ["kill one process"]
    assert left_out["disk full"] == "no root"
    assert "--mirror" in left_out["mirror"]
