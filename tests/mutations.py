"""Damaged files for property tests: cut, with flipped bits or other numbers in their headers, with parts repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]

NUMBERS = [b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\0\0\0\x80", b"\0\0\1\0"]
"""What a size in a header may say instead: nothing, very much, or less than nothing, in either order of bytes."""

thorough = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,  # the same cases in every run
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes, most: int = 4) -> bytes:
    """`content` with one to `most` changes, of which most are near its beginning, where headers are."""
    for _ in range(draw(st.integers(1, most))):
        if not content:
            break
        end = draw(st.sampled_from([min(64, len(content)), len(content)])) - 1
        place = draw(st.integers(0, end))
        match draw(st.sampled_from(["cut", "flip", "number", "byte", "repeat", "drop"])):
            case "cut":
                content = content[:place]
            case "flip":
                content = (
                    content[:place] + bytes([content[place] ^ 1 << draw(st.integers(0, 7))]) + content[place + 1 :]
                )
            case "number":
                number = draw(st.sampled_from(NUMBERS))
                content = content[:place] + number + content[place + len(number) :]
            case "byte":
                content = content[:place] + bytes([draw(st.integers(0, 255))]) + content[place + 1 :]
            case "repeat":
                length = draw(st.integers(1, 600))
                content = content[:place] + content[place : place + length] * 2 + content[place + length :]
            case "drop":
                content = content[:place] + content[place + draw(st.integers(1, 600)) :]
    return content


LIMITED = """
import resource, sys
{imports}
from pipeline.errors import UserError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {megabytes} * 2**20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from pathlib import Path
path = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {call}
except UserError as error:
    print(error.exit_code, error)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
assert grown < {megabytes}, f"{{grown}} MB"
"""


def in_little_memory(path: Path, imports: str, call: str, megabytes: int) -> str:
    """What a process prints that may use `megabytes` more than its imports: the named error of `call`, if any."""
    code = LIMITED.format(imports=imports, call=call, megabytes=megabytes)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
