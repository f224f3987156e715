"""A headless Chromium, driven over its debugging pipe: what a report does when somebody opens it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
PATIENCE = 120.0  # seconds
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
)


class Browser:
    """One tab of Chromium; `problems` lists what it wrote to its console, and every address that it asked for."""

    def __init__(self, script: bool = True) -> None:
        self._profile = tempfile.mkdtemp(prefix="fedbo-browser-")
        theirs, self._out = os.pipe()
        self._in, back = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{back}', str(CHROMIUM), *FLAGS, f"--user-data-dir={self._profile}"],
            pass_fds=(theirs, back),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(back)
        self._numbers, self._read, self._session = itertools.count(1), b"", ""
        self.problems, self.requests = list[str](), list[str]()
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
        except (RuntimeError, BrokenPipeError) as error:
            self.__exit__()
            raise RuntimeError(f"{CHROMIUM} cannot be used here: {error}") from None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the debugging protocol; RuntimeError when it fails."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = json.dumps({"id": number, "method": method, "params": parameters, **session})
        os.write(self._out, message.encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Open a file in a window of some size, and wait until it has loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (event := self._next()).get("method") != "Page.loadEventFired":
            self._note(event)

    def value(self, expression: str) -> Any:
        """Evaluate an expression of the page's script; RuntimeError when it throws."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **options: Any) -> None:
        """Move, press or release the pointer, or turn its wheel, at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)

    def click(self, selector: str) -> None:
        """Click the middle of an element, after scrolling to it."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        """Scroll to an element and give its middle in the window."""
        chosen = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{chosen}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.value(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({chosen}.getBoundingClientRect())")
        return x, y

    def key(self, name: str, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **({"text": text} if text and kind == "keyDown" else {}))

    def picture(self, path: Path, whole: bool = True) -> Path:
        """Write a picture of the page."""
        made = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(made["data"]))
        return path

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def printed(self) -> bytes:
        """Print the page as PDF."""
        made = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(made["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            if not select.select([self._in], [], [], PATIENCE)[0]:
                raise RuntimeError(f"Chromium has said nothing for {PATIENCE:g} seconds")
            found = os.read(self._in, 1 << 20)
            if not found:
                raise RuntimeError("Chromium has ended")
            self._read += found
        line, self._read = self._read.split(b"\0", 1)
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.problems.append(f"{said['type']}: {[each.get('value') for each in said['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(said["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.problems.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
