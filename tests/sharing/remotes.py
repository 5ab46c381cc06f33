"""Remotes of DVC, and what lies on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from servers import Bucket


@dataclass(frozen=True)
class Remote:
    """Where outputs are pushed to.

    Args:
        local: further settings, which must not reach Git.
        environment: credentials.
        objects: where its files can be read and changed past DVC: a folder or a bucket.
    """

    url: str
    local: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    objects: Path | Bucket | None = None

    def read(self, path: str) -> bytes:
        if isinstance(self.objects, Path):
            return (self.objects / path).read_bytes()
        assert self.objects is not None
        return self.objects.get(path)

    def write(self, path: str, content: bytes) -> None:
        if isinstance(self.objects, Path):
            self.delete(path)  # DVC protects its files
            (self.objects / path).write_bytes(content)
        elif self.objects is not None:
            self.objects.put(path, content)

    def delete(self, path: str) -> None:
        assert isinstance(self.objects, Path)
        (self.objects / path).unlink()
