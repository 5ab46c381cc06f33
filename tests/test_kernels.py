"""The compiler of kernels: what it makes, and what happens without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline import kernels
from pipeline.errors import UserError

runs_here = pytest.mark.skipif(
    not {"DEFAULT", torch.backends.cpu.get_cpu_capability()} & kernels.forms().keys(),
    reason="this processor has none of the instruction sets that kernels are compiled for",
)

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one kernel, and an empty folder for compiled ones."""
    (tmp_path / "package").mkdir()
    source = tmp_path / "package" / "answer.cpp"
    source.write_text(SOURCE)
    monkeypatch.setattr(kernels, "_PACKAGE", tmp_path / "package")
    monkeypatch.setattr(kernels, "folder", lambda: tmp_path / "compiled")
    kernels.load.cache_clear()
    return source


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
@runs_here
def test_the_kernel_found_is_that_of_the_source_as_it_is_now(project: Path) -> None:
    first = kernels.build()
    assert len(first) == len(kernels.forms())
    stamps = [path.stat().st_mtime_ns for path in first]
    assert kernels.build() == first
    assert [path.stat().st_mtime_ns for path in first] == stamps, "compiled once"
    kernel = kernels.find(project)
    assert kernel is not None
    assert kernel.library.answer() == 42
    assert kernel.lanes == (16 if kernel.form == "AVX512" else 8)
    assert kernels.load(project) is not None
    for changed, content in ((project, SOURCE.replace("42", "43")), (project.parent / "shared.h", "int one();\n")):
        changed.write_text(content)
        assert kernels.find(project) is None
        kernels.build()
        assert kernels.find(project) is not None


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
def test_a_damaged_kernel_is_not_used(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in kernels.build():
        path.write_text("damaged")
    assert kernels.load(project) is None
    assert "answer.cpp is not compiled" in caplog.text


def test_without_a_compiler_the_message_says_what_to_install(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"no C\+\+ compiler was found .*g\+\+"):
        kernels.build()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match="CXX is no-such-compiler"):
        kernels.build()
