"""Vega, Vega-Lite and Vega-Embed as published, for the page's charts. See README.md beside this file."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parent
SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
"""In the order in which they need each other."""


def vendored() -> list[str]:
    """The scripts as text, without the names of source maps, which are not here."""
    texts = [(_FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return [re.sub(r"\n//# sourceMappingURL=\S+\s*$", "\n", text) for text in texts]


def licences() -> str:
    """Their licences, each once. A page that holds the scripts must hold these, too."""
    texts = [path.read_text(encoding="utf-8").strip() for path in sorted(_FOLDER.glob("LICENSE.*"))]
    return "\n\n".join(dict.fromkeys(texts))
