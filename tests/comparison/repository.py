"""A small Git repository with parameters and a scorecard, as one reproduction leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from clones import Clone

CLAIMS = ("001.acc.r3", "001.acc.r0", "002.err", "004.t1.cnn", "000.fig7")
SEVERAL_SEEDS, STATEMENT, NOT_RUN = "004.t1.cnn", "000.fig7", "002.err"


@dataclass
class Repository:
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
        self.write("params.yaml", yaml.safe_dump(params))
        self.write("reports/quick/scorecard.json", json.dumps(rows))

    def _row(self, claim: str, machine: str, shift: float, commit: str, latent: int) -> dict[str, Any]:
        value, sd, n = (90.0 + shift, 1.0, 2) if claim == SEVERAL_SEEDS else (50.0 + shift, 0.0, 1)
        row: dict[str, Any] = {"id": claim, "claim": f"what {claim} says", "verdict": "worse", "provenance": {}}
        row["ours"] = {"value": value, "sd": sd, "n": n}
        if claim == NOT_RUN:
            return row | {"ours": None, "verdict": "not run"}
        if claim == STATEMENT:
            row |= {"ours": None, "verdict": "holds" if shift >= 0 else "fails"}
        return row | {
            "provenance": {
                "items": ["evaluate/vae"],
                "commit": commit,
                "params_hash": f"latent {latent}",
                "tracking_runs": [f"{machine}-{claim}"],
                "device": f"CPU ({machine})",
            }
        }

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, tag: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", tag)
        self.git("tag", tag)
