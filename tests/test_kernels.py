"""The compiler of kernels: what it makes, and what happens without it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from pipeline import kernels

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
    kernels._load.cache_clear()
    return source


def fake_compiler(folder: Path, script: str) -> Path:
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
def test_a_kernel_is_compiled_once_for_each_form_and_again_when_its_source_changes(project: Path) -> None:
    first = kernels.build()
    assert len(first) == len(kernels.forms())
    stamps = [path.stat().st_mtime_ns for path in first]
    assert kernels.build() == first
    assert [path.stat().st_mtime_ns for path in first] == stamps
    project.write_text(SOURCE.replace("42", "43"))
    assert not set(kernels.build()) & set(first)


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
@runs_here
def test_the_kernel_found_is_that_of_the_source_as_it_is_now(project: Path) -> None:
    assert kernels.find(project) is None
    kernels.build()
    kernel = kernels.find(project)
    assert kernel is not None
    assert kernel.library.answer() == 42
    assert kernel.lanes == (16 if kernel.form == "AVX512" else 8)
    project.write_text(SOURCE.replace("42", "43"))
    assert kernels.find(project) is None


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
@runs_here
def test_a_damaged_kernel_is_not_used(project: Path) -> None:
    for path in kernels.build():
        path.write_text("damaged")
    assert kernels.find(project) is None


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
@runs_here
def test_a_kernel_includes_the_header_and_is_another_when_that_changes(project: Path) -> None:
    header = project.parent / "shared.h"
    header.write_text("#define ANSWER 42\n")
    (project.parent / "layers").mkdir()
    source = project.rename(project.parent / "layers" / "answer.cpp")
    source.write_text('#include "shared.h"\n' + SOURCE.replace("42", "ANSWER"))
    first = kernels.build()
    kernel = kernels.find(source)
    assert kernel is not None
    assert kernel.library.answer() == 42
    header.write_text("#define ANSWER 43\n")
    assert kernels.find(source) is None
    assert not set(kernels.build()) & set(first)
    kernel = kernels.find(source)
    assert kernel is not None
    assert kernel.library.answer() == 43


def test_a_changed_header_gives_a_library_another_name(project: Path) -> None:
    forms = list(kernels.forms())
    names = {kernels._path(project, form).name for form in forms}
    for content in ("int one();\n", "int two();\n"):
        (project.parent / "shared.h").write_text(content)
        names |= {kernels._path(project, form).name for form in forms}
    assert len(names) == 3 * len(forms)


def test_a_missing_kernel_is_logged_once(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert kernels.load(project) is None
        assert kernels.load(project) is None
    assert [record.getMessage() for record in caplog.records] == [
        "answer.cpp is not compiled for this processor: the slower PyTorch form is used (python -m pipeline doctor)"
    ]


@pytest.mark.skipif(kernels.compiler() is None, reason="no C++ compiler")
@runs_here
def test_kernels_can_be_switched_off_for_a_while(project: Path) -> None:
    kernels.build()
    assert kernels.load(project) is not None
    with kernels.switched_off():
        with kernels.switched_off():
            assert kernels.load(project) is None
        assert kernels.load(project) is None
    assert kernels.load(project) is not None


def test_a_damaged_library_is_no_kernel(project: Path) -> None:
    form = next(iter(kernels.forms()))
    path = kernels._path(project, form)
    path.parent.mkdir()
    path.write_bytes(b"not a library")
    assert kernels.find(project, form) is None


def test_an_unknown_form_has_no_kernel(project: Path) -> None:
    assert kernels.find(project, "SVE9") is None


def test_without_a_compiler_the_message_says_what_to_install(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(kernels.CompilerError, match=r"no C\+\+ compiler was found .*g\+\+"):
        kernels.build()


def test_a_failing_compiler_is_quoted_and_leaves_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_compiler(tmp_path, "echo 'answer.cpp:1: no such thing' >&2; exit 1")
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(kernels.CompilerError, match=r"failed on answer.cpp: answer.cpp:1: no such thing"):
        kernels.build()
    assert list((tmp_path / "compiled").iterdir()) == []


def test_a_pointer_is_the_address_of_a_tensors_numbers() -> None:
    tensor = torch.arange(4.0)
    assert kernels.pointer(tensor).value == tensor.data_ptr()
    assert kernels.pointer(tensor[1:]).value == tensor.data_ptr() + 4
    assert kernels.pointer(None).value is None


def test_what_a_kernel_returns_is_checked_and_the_message_names_what_failed() -> None:
    kernels.check(0, "attention")
    with pytest.raises(MemoryError, match=r"^attention: not enough memory; a smaller batch needs less$"):
        kernels.check(1, "attention")
    with pytest.raises(ValueError, match=r"^EM routing: the kernel was not compiled for these sizes$"):
        kernels.check(2, "EM routing")
