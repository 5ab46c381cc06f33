"""What moved between two states of the repository, and what is chance."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import pytest
import yaml
from clones import Clone
from commands import pipeline

from pipeline.comparison import noise
from pipeline.comparison.changes import Change, changes, describe
from pipeline.comparison.sides import Answer, Side, Tree, load_sides
from pipeline.errors import UserError
from pipeline.layout import Layout

ROOT = Path(__file__).parents[2]
CLAIMS = ("001.acc.r3", "001.acc.r0", "002.err", "004.t1.cnn", "000.fig7")
SEVERAL_SEEDS, STATEMENT, NOT_RUN = "004.t1.cnn", "000.fig7", "002.err"
SINGLE = "001.acc.r3"
HERE = Tree(ROOT, "here")


@dataclass
class Repository:
    """Parameters and a scorecard under Git, as one reproduction leaves them."""

    root: Path

    def git(self, *words: str) -> str:
        return Clone(self.root).run("git", *words).strip()

    def reproduce(
        self,
        machine: str,
        shift: float = 0.0,
        *,
        commit: str = "aa",
        latent: int = 8,
        moved: Mapping[str, float] | None = None,
    ) -> None:
        """Write what a reproduction does, on a machine whose rounding moves every number by `shift`."""
        params = {"profile": "quick", "runs": {"vae": {"latent": latent, "epochs": 3}}}
        rows = [self._row(claim, machine, shift + (moved or {}).get(claim, 0.0), commit, latent) for claim in CLAIMS]
        (self.root / "reports/quick").mkdir(parents=True, exist_ok=True)
        (self.root / "params.yaml").write_text(yaml.safe_dump(params))
        (self.root / "reports/quick/scorecard.json").write_text(json.dumps(rows))

    def _row(self, claim: str, machine: str, shift: float, commit: str, latent: int) -> dict[str, Any]:
        value, sd, n = (90.0 + shift, 1.0, 2) if claim == SEVERAL_SEEDS else (50.0 + shift, 0.0, 1)
        made = {"items": ["evaluate/vae"], "commit": commit, "params_hash": f"latent {latent}"}
        made |= {"tracking_runs": [f"{machine}-{claim}"], "device": f"CPU ({machine})"}
        row = {"id": claim, "claim": f"what {claim} says", "verdict": "worse", "provenance": made}
        if claim == NOT_RUN:
            return row | {"ours": None, "verdict": "not run", "provenance": {}}
        if claim == STATEMENT:
            return row | {"ours": None, "verdict": "holds" if shift >= 0 else "fails"}
        return row | {"ours": {"value": value, "sd": sd, "n": n}}

    def commit(self, tag: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", tag)
        self.git("tag", tag)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Results of one commit made on two machines, tagged `first` and `second`."""
    made = Repository(tmp_path / "a clone")
    made.root.mkdir()
    made.git("init", "-q")
    made.git("symbolic-ref", "HEAD", "refs/heads/main")
    for machine, shift in (("first", 0.5), ("second", -0.5)):
        made.reproduce(machine, shift)
        made.commit(machine)
    return made


def compared(repository: Repository, *words: str) -> dict[str, Change]:
    before, after = load_sides(repository.root, words)
    spreads = (noise.read(repository.root, before.profile), noise.read(repository.root, after.profile))
    return {change.id: change for change in changes(before, after, spreads)}


def measure(repository: Repository, *words: str) -> tuple[dict[str, noise.Spread], dict[str, list[str]]]:
    sides = load_sides(repository.root, words)
    claims, skipped = noise.measure(sides)
    noise.write(repository.root, sides, claims)
    return claims, skipped


def test_two_machines_with_the_same_commit_differ_within_noise_throughout(repository: Repository) -> None:
    before = compared(repository, "first", "second")
    assert {change.word for change in before.values()} == {"noise unknown", "within noise"}
    measured, skipped = measure(repository, "first", "second")
    after = compared(repository, "first", "second")
    assert after.keys() == set(CLAIMS) - {NOT_RUN}
    assert {change.word for change in after.values()} == {"within noise"}
    assert measured[SINGLE] == noise.Spread(pytest.approx(math.sqrt(0.5)), 2, ["worse"])
    assert measured[STATEMENT] == noise.Spread(None, 2, ["fails", "holds"])
    assert skipped == {"not run in every revision": [NOT_RUN]}


def test_a_changed_parameter_is_named_and_what_it_moved_too(repository: Repository) -> None:
    for name, shift in zip("abcd", (-3, -1, 1, 3), strict=True):
        repository.reproduce(name, 0.1 * shift * math.sqrt(3 / 20))  # a standard deviation of 0.1
        repository.commit(name)
    measure(repository, *"abcd")
    repository.reproduce("second", -0.5, latent=4, moved={SINGLE: 3.5, "001.acc.r0": 0.3, SEVERAL_SEEDS: 25.0})
    found = compared(repository, "second", ".")
    assert {name: change.word for name, change in found.items()} == {
        SINGLE: "moved",
        SEVERAL_SEEDS: "moved",
        "001.acc.r0": "within noise",
    }
    assert list(found)[:2] == [SINGLE, SEVERAL_SEEDS], "what moved comes first"
    before, after = load_sides(repository.root, ["second", "."])
    text = "\n".join(describe(before, after, list(found.values()), {SINGLE: "%"}))
    assert "parameters: 1 differs\n  runs.vae.latent  8 -> 4\n" in text
    line = next(line for line in text.splitlines() if SINGLE in line)
    words = f"moved {SINGLE} 49.5 -> 53 +3.5, noise 0.14 (4 machines), p = 0.00014 worse what {SINGLE} says [%]"
    assert line.split() == words.split()


def answer(value: float | None, sd: float = 0.0, n: int = 1, verdict: str = "within") -> Answer:
    return Answer("a claim", value, sd, n, verdict)


def spread(sd: float | None, *verdicts: str, n: int = 2) -> noise.Spread:
    return noise.Spread(sd, n, list(verdicts))


@pytest.mark.parametrize(
    ("before", "after", "spreads", "expected"),
    [
        (answer(1, 2, 4), answer(2, 2, 4), (None, None), [(math.sqrt(2), 6, "4 and 4 repetitions")]),
        (answer(1, 2, 4), answer(2, 1, 2), (None, None), [(math.sqrt(13 / 4 * 3 / 4), 4, "4 and 2 repetitions")]),
        (answer(1), answer(2), (spread(3), spread(4, n=5)), [(5, 1, "2 machines")]),
        (answer(1, 0, 2), answer(2, 0, 2), (spread(3), spread(4)), [(5 / math.sqrt(2), 1, "2 machines")]),
        (answer(1, 0, 9), answer(2), (spread(3), spread(4)), [(math.hypot(1, 4), 1, "2 machines")]),
        (answer(1), answer(2), (spread(0), spread(0)), []),
        (answer(1), answer(2), (spread(3), None), []),
        (
            replace(answer(1, 3, 1600), standard_error=True),
            replace(answer(2, 4, 1600), standard_error=True),
            (None, None),
            [(5, 3198, "1600 and 1600 repetitions")],
        ),
        # The standard error of a mean over 4 is 3, so the sd is 6. The other number has no repetitions: sd 6, too.
        (
            replace(answer(1, 3, 4), standard_error=True),
            answer(2),
            (None, None),
            [(math.hypot(3, 6), 3, "4 and 1 repetitions")],
        ),
        # Of one seed: over images alone.
        (replace(answer(1, 3), standard_error=True), replace(answer(2, 4), standard_error=True), (None, None), []),
    ],
)
def test_the_noise_of_a_difference(
    before: Answer,
    after: Answer,
    spreads: tuple[noise.Spread | None, noise.Spread | None],
    expected: list[tuple[float, int, str]],
) -> None:
    found = noise.of_difference(before, after, spreads)
    assert [(each.degrees, each.source) for each in found] == [each[1:] for each in expected]
    assert [each.sd for each in found] == pytest.approx([each[0] for each in expected])


@pytest.mark.parametrize("difference", [0.0, 0.3, -2.0, 40.0])
def test_the_chance_of_a_difference_by_closed_forms(difference: float) -> None:
    """Student's t with one degree of freedom is a Cauchy distribution; that with two has an algebraic form, too."""
    x = abs(difference) / 0.5
    assert noise.Noise(0.5, 1, "").chance(difference) == pytest.approx(1 - 2 / math.pi * math.atan(x))
    assert noise.Noise(0.5, 2, "").chance(difference) == pytest.approx(1 - x / math.sqrt(2 + x * x))


def test_of_comparisons_without_a_change_one_in_twenty_says_that_something_moved() -> None:
    """Twenty claims of different scales; four machines measure the noise, two others are compared."""
    generator, claims, machines = np.random.default_rng(0), 20, 4
    scales = np.logspace(-3, 3, claims)
    false_alarms = 0
    for _ in range(400):
        values = generator.normal(size=(machines + 2, claims)) * scales
        sds = values[:machines].std(axis=0, ddof=1)
        spreads = {str(i): spread(sd, n=machines) for i, sd in enumerate(sds)}
        sides = (Side("", {}, {str(i): answer(x) for i, x in enumerate(row)}, HERE) for row in values[machines:])
        false_alarms += any(change.word == "moved" for change in changes(*sides, (spreads, spreads)))
    assert 6 <= false_alarms <= 34  # 20 are expected; the standard deviation is 4.4


HOLDS, FAILS = answer(None, verdict="holds"), answer(None, verdict="fails")


@pytest.mark.parametrize(
    ("before", "after", "spreads", "word"),
    [
        (answer(50), answer(50), {}, None),
        (answer(6e-14), answer(4e-14), {"c": spread(1e-16)}, None),  # rounding of 0
        (answer(None, verdict="not run"), answer(None, verdict="not run"), {}, None),
        (answer(50), answer(None, verdict="not run"), {}, "only one side has it"),
        (answer(50), answer(50.1), {"c": spread(0.0)}, "noise unknown"),
        # With two machines a difference has to be 12.7 times its standard deviation, with 101 twice.
        (answer(50), answer(67.9), {"c": spread(1.0)}, "within noise"),
        (answer(50), answer(68.0), {"c": spread(1.0)}, "moved"),
        (answer(50), answer(52.8), {"c": spread(1.0, n=101)}, "within noise"),
        (answer(50), answer(47.1), {"c": spread(1.0, n=101)}, "moved"),
        (answer(50), answer(50, verdict="worse"), {"c": spread(1.0)}, "moved"),  # another rule, not chance
        (HOLDS, FAILS, {"c": spread(None, "holds")}, "noise unknown"),
        (HOLDS, FAILS, {"c": spread(None, "fails", "holds")}, "within noise"),
        # Many seeds tell more than few, also where the machines differ.
        (answer(50, 0.5, 2), answer(60, 0.5, 2), {"c": spread(4.0, n=4)}, "within noise"),
        (answer(50, 0.5, 20), answer(60, 0.5, 20), {"c": spread(4.0, n=4)}, "moved"),
    ],
)
def test_the_word_of_a_claim(before: Answer, after: Answer, spreads: dict[str, noise.Spread], word: str | None) -> None:
    sides = (Side("quick", {}, {"c": each}, HERE) for each in (before, after))
    assert [change.word for change in changes(*sides, (spreads, spreads))] == [word] * (word is not None)


def test_a_spread_is_measured_of_the_same_work_done_twice_only(repository: Repository) -> None:
    def refused(why: str, *words: str) -> None:
        with pytest.raises(UserError, match=why):
            measure(repository, *words)

    for commit, latent in (("bb", 8), ("aa", 4)):
        repository.reproduce("third", commit=commit, latent=latent)
        refused("4 from differing commits or settings", "first", ".")
    refused("4 with a result that two revisions share", "first", "first")
    refused("at least two revisions", "first")
    repository.reproduce("another", 0.5)
    refused("4 with the same answer on all machines", "first", ".")
    assert not Layout(repository.root, "quick").noise_path.exists()


def test_machines_that_round_alike_count_once(repository: Repository) -> None:
    """Four machines of which two agree in all that a claim rests on; two others agree in one claim by chance."""
    other = "001.acc.r0"
    for name, shift, further in (("a", 0.3, 0.0), ("b", 0.3, 0.0), ("c", 0.7, 0.5), ("d", 0.7, 0.6)):
        repository.reproduce(name, shift, moved={other: further})
        repository.commit(name)
    spread, _ = measure(repository, *"abcd")
    assert spread[SINGLE] == noise.Spread(pytest.approx(stdev([0.3, 0.7, 0.7])), 3, ["worse"])
    assert spread[other] == noise.Spread(pytest.approx(stdev([0.3, 1.2, 1.3])), 3, ["worse"])
    assert spread[SEVERAL_SEEDS].repetitions == 2
    assert spread[STATEMENT] == noise.Spread(None, 4, ["holds"])


# ---- the command


def test_the_command_compares_and_measures_noise(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository.root)
    assert pipeline(monkeypatch, "compare", "first", "first") == 0
    assert f"claims: none of {len(CLAIMS)} differ" in capsys.readouterr().out
    assert pipeline(monkeypatch, "compare", "--noise", "first", "second") == 0
    capsys.readouterr()
    assert pipeline(monkeypatch, "compare", "first", "second") == 0
    assert "4 within noise" in capsys.readouterr().out
    for words in (("a", "b", "c"), ("--noise", "first")):
        assert pipeline(monkeypatch, "compare", *words) == 1


def test_what_a_terminal_cannot_show_is_replaced(repository: Repository) -> None:
    scorecard = Layout(repository.root, "quick").scorecard_path
    scorecard.write_text(scorecard.read_text().replace("what", "\u00b1"))
    repository.commit("signs")
    ascii_only = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", "LC_ALL": "C"}
    assert "? 001.acc.r3 says" in Clone(repository.root).run("pipeline", "compare", "first", "HEAD", **ascii_only)


def test_a_side_is_a_revision_a_profile_or_the_working_tree(repository: Repository) -> None:
    commit = repository.git("rev-parse", "HEAD")
    words = ("first", "HEAD~1", ".", commit)
    values = {word: load_sides(repository.root, [word])[0].answers[SINGLE].value for word in words}
    assert values == {"first": 50.5, "HEAD~1": 50.5, ".": 49.5, commit: 49.5}
    assert load_sides(repository.root, ["quick"])[0].tree.commit is None
    repository.git("update-ref", "refs/exps/12/3456/narrow", "first")
    assert load_sides(repository.root, ["narrow"])[0].answers[SINGLE].value == 50.5, "an experiment of DVC"
    repository.git("branch", "quick")
    for word, message in (("nobody", "neither a Git revision nor a profile"), ("quick", "both a profile and a Git")):
        with pytest.raises(UserError, match=message):
            load_sides(repository.root, [word])
    for content in (b"<<<<<<< HEAD", b'[{"id": "001.a"}]', b"\xff\xfe"):
        (repository.root / "reports/quick/scorecard.json").write_bytes(content)
        with pytest.raises(UserError, match=r"scorecard\.json of the working tree is not a scorecard"):
            load_sides(repository.root, ["."])


def test_a_repository_without_a_commit_has_a_working_tree(repository: Repository) -> None:
    shutil.rmtree(repository.root / ".git")
    repository.git("init", "-q")
    assert load_sides(repository.root, ["."])[0].answers[SINGLE].value == 49.5
    with pytest.raises(UserError, match="neither a Git revision nor a profile"):
        load_sides(repository.root, ["HEAD"])
