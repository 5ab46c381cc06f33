"""Words that docstrings, messages, captions and documents do not have."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = [path for room in ("pipeline", "stages", "scripts", "benchmarks") for path in (ROOT / room).rglob("*.py")]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("pipeline/**/*.yaml"),
    *ROOT.glob("pipeline/**/*.j2"),
]
WORDS = re.compile(
    r"\b(warmth|climb(s|ed|ing)?|kicks?|foretold|heaviest|lightest|silenced?)\b"  # old names of what has a standard one
    r"|\b(session|agent)s?\b|\bissue #?\d|/work/|pypi\.org|pythonhosted",  # how and where something was made
    re.IGNORECASE,
)


def prose(path: Path) -> str:
    """The strings and comments of a Python file that has one of the words; of any other its whole text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or not WORDS.search(text):
        return text
    with path.open("rb") as file:
        kinds = (tokenize.STRING, tokenize.COMMENT)
        return "\n".join(token.string for token in tokenize.tokenize(file.readline) if token.type in kinds)


def test_old_names_and_how_something_was_made_are_not_mentioned() -> None:
    found = {str(path): match[0] for path in (*CODE, *DOCUMENTS) if (match := WORDS.search(prose(path)))}
    assert len(CODE) > 200
    assert len(DOCUMENTS) > 10
    assert found == {}
