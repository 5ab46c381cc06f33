"""The campaign: one fault after another, each followed by finishing the reproduction and comparing what it left.

What is asked of every case: after the fault, `dvc repro` (and what its messages say to do, at most) ends with exactly
the files that a reproduction without any fault leaves.
"""

from __future__ import annotations

import random
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from queue import Queue
from typing import Any

from benchmarks.faults import files, processes, servers
from benchmarks.faults.contents import differences
from benchmarks.faults.repository import Repository

SURVIVED, ADVISED, DIFFERING, LOST = "survived", "survived with advice", "differing", "lost"
OUTCOMES = {
    SURVIVED: "the next `dvc repro` finished it, bit for bit",
    ADVISED: "so it did, after what its message said to do",
    DIFFERING: "it finished, with other files",
    LOST: "it could not be finished",
}
MOST_ADVICE = 4  # times that the advice of a message is followed in one case


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        state: from which the case begins, as `Repository.begin` says.
        apply: does it, and describes what was done.
        missing: why it cannot be done on this machine, if it cannot.
    """

    state: str
    apply: Callable[[Repository, random.Random], str]
    missing: Callable[[], str] = str


FAULTS: dict[str, Fault] = {
    "kill one process": Fault("prepared", processes.kill_any),
    "kill all processes": Fault("prepared", processes.kill_all),
    "SIGTERM to one process": Fault("prepared", processes.terminate_any),
    "SIGINT, as Ctrl-C": Fault("prepared", processes.interrupt),
    "kill while data are made": Fault("nothing", processes.kill_any),
    "two reproductions at once": Fault("prepared", processes.two_at_once),
    "kill one process of a fan-out": Fault("prepared", processes.kill_of_fan_out, processes.can_fan_out),
    "kill a fan-out": Fault("prepared", processes.kill_fan_out, processes.can_fan_out),
    "output cut": Fault("finished", files.damage_output(files.cut)),
    "output changed": Fault("finished", files.damage_output(files.flip)),
    "checkpoint cut": Fault("prepared", files.damage_checkpoint(files.cut)),
    "checkpoint changed": Fault("prepared", files.damage_checkpoint(files.flip)),
    "DVC's cache cut": Fault("finished", files.damage_cache(files.cut)),
    "DVC's cache changed": Fault("finished", files.damage_cache(files.flip)),
    "files lost": Fault("finished", files.lose_cache),
    "DVC's lock file cut": Fault("finished", files.damage_lock(files.cut)),
    "DVC's lock file changed": Fault("finished", files.damage_lock(files.flip)),
    "journal cut": Fault("finished", files.damage_journal(files.cut)),
    "journal changed": Fault("finished", files.damage_journal(files.flip)),
    "clock set": Fault("finished", files.move_times),
    "disk full": Fault("prepared", files.disk_full, files.can_mount),
    "outputs read-only": Fault("finished", files.read_only, files.can_lock),
    "tracking server": Fault("prepared", servers.tracking),
    "mirror": Fault("nothing", servers.mirror),
}


@dataclass(frozen=True)
class Case:
    """One fault and how it ended.

    Attributes:
        number: of the case in its campaign; with the seed it gives the same fault again.
        advice: what was done because a message said so.
        differing: files that are not as they should be.
        message: end of the output, if it could not be finished.
    """

    number: int
    kind: str
    detail: str
    outcome: str
    advice: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    message: str = ""


def possible(kinds: Sequence[str], repository: Repository) -> tuple[list[str], dict[str, str]]:
    """The kinds that can be tried here, and the others with the reason why not."""
    left_out = {kind: why for kind in kinds if (why := FAULTS[kind].missing())}
    if "mirror" in kinds and not repository.mirror:
        left_out["mirror"] = "needs a folder with the files of MNIST: --mirror"
    return [kind for kind in kinds if kind not in left_out], left_out


def run_cases(
    repositories: Sequence[Repository], kinds: Sequence[str], seed: int, numbers: Sequence[int]
) -> Iterator[Case]:
    """The cases of a campaign, kinds in turn, as they end. Each depends on the seed and its number only.

    Args:
        repositories: which are built first; as many cases run at once.
    """
    left = deque(numbers)
    ended: Queue[Case | BaseException | None] = Queue()

    def work(repository: Repository) -> None:
        try:
            repository.build()
            while left:
                number = left.popleft()
                kind = kinds[number % len(kinds)]
                ended.put(run_case(repository, number, kind, random.Random(f"{seed}/{number}/{kind}")))
        except IndexError:  # another thread took the last one
            pass
        except BaseException as error:  # all exceptions: they are raised in the caller's thread
            ended.put(error)
        finally:
            ended.put(None)

    for repository in repositories:
        threading.Thread(target=work, args=(repository,), daemon=True).start()
    at_work = len(repositories)
    while at_work:
        case = ended.get()
        if isinstance(case, BaseException):
            raise case
        if case is None:
            at_work -= 1
        else:
            yield case


def run_case(repository: Repository, number: int, kind: str, chance: random.Random) -> Case:
    """One fault, then finishing and comparing."""
    fault = FAULTS[kind]
    try:
        repository.begin(fault.state)
        detail = fault.apply(repository, chance)
        code, output, advice = finish(repository)
        if code:
            return Case(number, kind, detail, LOST, tuple(advice), message=output[-1500:])
        differing = differences(repository.folder, repository.reference[repository.targets])
        outcome = DIFFERING if differing else ADVISED if advice else SURVIVED
        return Case(number, kind, detail, outcome, tuple(advice), tuple(differing))
    finally:
        files.leave_disk(repository)


def finish(repository: Repository) -> tuple[int, str, list[str]]:
    """Reproduce until that succeeds or its message gives no advice: exit code, output and the advice followed."""
    advice: list[str] = []
    while True:
        code, output = repository.reproduce()
        if not code:
            # What DVC holds to be up to date now must be so at a second look.
            code, again = repository.call("dvc", "status", *repository.targets)
            fresh = "up to date" in again
            return (code, output, advice) if fresh else (1, f"{output}\n{again}", advice)
        followed = _follow(repository, output)
        if not followed or len(advice) == MOST_ADVICE:
            return code, output, advice
        advice.append(followed)


def _follow(repository: Repository, output: str) -> str:
    """Do what a message says, and say what it was; empty if it says nothing that could be done."""
    if found := re.search(r"(\S[^\n]*?) (?:is damaged|is not|belongs to|was not)[^\n]*Delete it", output):
        path = repository.folder / found[1].split("error: ")[-1].strip()
        if path.is_file() and repository.work in path.resolve().parents:
            path.unlink()
            return "a damaged file deleted"
    if "dvc.lock" in output and re.search(r"is invalid|unable to read|validation failed|not valid YAML", output):
        (repository.folder / "dvc.lock").unlink(missing_ok=True)
        repository.call("git", "checkout", "dvc.lock")
        return "git checkout dvc.lock"
    _, found = repository.call("pipeline", "doctor")
    if listed := re.search(r"^ +delete (.+)$", found, re.MULTILINE):
        for name in listed[1].split(", "):
            (repository.folder / name).unlink()
        return "damaged records of the run cache deleted, as `python -m pipeline doctor` says"
    return ""


def report(cases: Sequence[Case], left_out: dict[str, str], seed: int, commit: str) -> dict[str, Any]:
    """What `reports/faults.json` says."""
    survived = [case for case in cases if case.outcome in (SURVIVED, ADVISED)]
    by_kind: dict[str, dict[str, int]] = {}
    for case in sorted(cases, key=lambda each: each.number):
        counts = by_kind.setdefault(case.kind, dict.fromkeys(("tried", *OUTCOMES), 0))
        counts["tried"] += 1
        counts[case.outcome] += 1
    return {
        "tried": len(cases),
        "survived": len(survived),
        "with_advice": sum(case.outcome == ADVISED for case in cases),
        "differing": sum(case.outcome == DIFFERING for case in cases),
        "lost": sum(case.outcome == LOST for case in cases),
        "by_kind": by_kind,
        "not_tried": left_out,
        "advice": sorted({each for case in cases for each in case.advice}),
        "failures": [asdict(case) for case in sorted(cases, key=lambda each: each.number) if case not in survived],
        "seed": seed,
        "commit": commit,
    }
