"""The commands of a document, which tests run."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands(document: str, title: str) -> list[str]:
    """The blocks of commands of a document's section, one text each, without indentation."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    _, begun, section = text.partition(f"# {title}\n")
    assert begun, f"{document} has no section '{title}'"
    blocks: list[list[str]] = [[]]
    for line in section.partition("\n#")[0].splitlines():
        if line.startswith("    "):
            blocks[-1].append(line[4:])
        elif line.strip():
            blocks.append([])
    return ["\n".join(block) for block in blocks if block]
