"""A headless Chromium, driven by its DevTools protocol over a pipe: no port, no driver, no further package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

#: The checker of accessibility, from npm.
AXE = "axe-core@4.10.3"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Chromium talks on descriptors 3 (what it is told) and 4 (what it says).
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)

#: Texts of tables and bars that overlap another one by more than a pixel.
OVERLAPS = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), boxes = [];
  for (let node; (node = walker.nextNode());) {
    const its = node.parentElement;
    if (!node.data.trim() || !its.checkVisibility() || its.closest("svg, .skip, title")) continue;
    if (getComputedStyle(its.closest("thead") ?? its).clipPath !== "none") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) boxes.push([node.data.trim(), box]);
  }
  for (const bar of document.querySelectorAll(".bars svg rect")) boxes.push(["bar", bar.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([name, box], k) => boxes.slice(k + 1).forEach(([other, its]) => {
    if (box.left + 1 < its.right && its.left + 1 < box.right && box.top + 2 < its.bottom && its.top + 2 < box.bottom)
      found.push(`${name} / ${other}`);
  }));
  return found;
})()"""
#: Words of tables on more than one line.
BROKEN = """(() => {
  const found = [];
  for (const cell of document.querySelectorAll("th, td")) {
    if (getComputedStyle(cell.closest("thead") ?? cell).clipPath !== "none") continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());) for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(it => Math.round(it.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})()"""


def found() -> str | None:
    """The program, if this machine has one."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@cache
def checker() -> str:
    """The program of axe-core; skips the test where npm, or the package, is not at hand."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine, which brings axe-core: apt-get install npm")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, AXE]
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm cannot bring {AXE}: {done.stderr.strip()[-200:]}")
        return Path(folder, "node_modules", "axe-core", "axe.min.js").read_text(encoding="utf-8")


class Browser:
    """One page of one browser; `complaints` gathers errors, warnings of the console and requests for anything else."""

    def __init__(self, folder: Path, deadline: float = 60.0) -> None:
        self.complaints: list[str] = []
        self._deadline = deadline
        self._number = 0
        self._unread = b""
        program = found()
        assert program is not None
        options = [
            *("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={folder}"),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The pipe's ends may themselves be 3 and 4; descriptors from 10 on cannot be overwritten by the other's copy.
        high = (_above(theirs_in), _above(theirs_out))
        command = [sys.executable, "-c", _LAUNCH, str(high[0]), str(high[1]), program, *options, "about:blank"]
        with (folder / "stderr.txt").open("wb") as log:
            self._process = subprocess.Popen(command, pass_fds=high, stdout=log, stderr=log)
        for each in (*high, theirs_in, theirs_out):
            os.close(each)
        try:
            self._session = self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> str:
        """The session of the one page, which tells from here on what happens in it."""
        target = next(it for it in self._send("Target.getTargets")["targetInfos"] if it["type"] == "page")
        attached = self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable", session=session)
        return session

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def open(self, page: Path, *, width: int, height: int = 900, scheme: str = "light", script: bool = True) -> None:
        """Load a file in a window of that many pixels."""
        self.complaints.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.go(page.as_uri())
        if script:  # what the page's script lays out once it has seen the first frame
            self.evaluate("new Promise(end => requestAnimationFrame(() => requestAnimationFrame(() => end(1))))")

    def go(self, address: str) -> None:
        """Load an address."""
        self.call("Page.navigate", url=address)
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, clip: dict[str, float] | None = None) -> bytes:
        """The whole page, or a part of it ({x, y, width, height}), as PNG."""
        part = {"clip": {**clip, "scale": 1}} if clip else {}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **part)
        return base64.b64decode(answer["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page."""
        return self._send(method, session=self._session, **parameters)

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == self._number)
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, wanted: Any) -> dict[str, Any]:
        end = time.monotonic() + self._deadline
        while True:
            while b"\0" not in self._unread:
                left = end - time.monotonic()
                if left <= 0 or not select.select([self._in], [], [], left)[0]:
                    raise TimeoutError("the browser does not answer")
                part = os.read(self._in, 1 << 20)
                if not part:
                    raise ConnectionError("the browser has ended")
                self._unread += part
            line, self._unread = self._unread.split(b"\0", 1)
            message: dict[str, Any] = json.loads(line)
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: dict[str, Any]) -> None:
        method, content = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(content["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(content["args"]))
        elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.complaints.append(content["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not content["request"]["url"].startswith(
            ("file:", "data:", "about:")
        ):
            self.complaints.append(f"asked for {content['request']['url']}")


def _above(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
