"""Words that code, messages, captions and documents do not have."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(warmth|climb(s|ed|ing)?|kicks?|foretold|heaviest|lightest)\b"  # old names of what has a standard one
    r"|\b(session|agent)s?\b|\bissue #?\d|/work/|pypi\.org|pythonhosted",  # how and where something was made
    re.IGNORECASE,
)


def test_old_names_and_how_something_was_made_are_not_mentioned() -> None:
    code = [path for room in ("pipeline", "stages", "scripts", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    kinds = ("*.md", "docs/*.md", "pipeline/**/*.yaml", "pipeline/**/*.j2")
    documents = [path for kind in kinds for path in ROOT.glob(kind)]
    assert (len(code) > 200, len(documents) > 10) == (True, True)
    found = {str(path): match[0] for path in code + documents if (match := WORDS.search(path.read_text("utf-8")))}
    assert found == {}
