"""A headless Chromium under remote control, over a pair of pipes: no port, no driver, no further dependency.

Its protocol is described at chromedevtools.github.io/devtools-protocol: JSON messages, each ended by a zero byte.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands from file 3 and writes answers to file 4: this puts our pipes there and becomes it.
_START = (
    "import fcntl, os, sys\n"
    "r, w = (fcntl.fcntl(int(f), fcntl.F_DUPFD, 10) for f in sys.argv[1:3])\n"
    "os.dup2(r, 3), os.dup2(w, 4), os.close(r), os.close(w)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)


def find_browser() -> str | None:
    """The path of an installed Chromium or Chrome, if there is one."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page of a fresh browser. What the page requested and complained about gathers in `requests` and
    `complaints`."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [sys.executable, "-c", _START, str(to_read), str(to_write), program, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self._seen: list[str] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests.clear()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer; events on the way are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(60)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False, address: str = "") -> None:
        """Load a file at a width in CSS pixels and wait until it has loaded.

        Args:
            address: what follows the file in the address, such as "?q=word#heading".
        """
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        for gathered in (self._seen, self.requests, self.complaints):
            gathered.clear()
        self.call("Page.navigate", url=page.as_uri() + address)
        deadline = time.monotonic() + 60
        while "Page.loadEventFired" not in self._seen:
            self._receive(deadline - time.monotonic())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key, by its name and its Windows virtual key code."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def wait(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + 20
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def _receive(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise ConnectionError("the browser has gone")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        event = json.loads(message)
        self._note(event)
        return event

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        self._seen.append(method)
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("data:"):  # the page's own content, not a request to anywhere
                self.requests.append(url)
        elif method == "Log.entryAdded":
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{params['type']}: {params['args']}")
