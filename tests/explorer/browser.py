"""A browser without a window and without a network, driven over a pipe: no package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time

_NAMES = ("chromium", "google-chrome", "chrome")
# Windows passes no descriptors on.
BROWSER = None if sys.platform == "win32" else next(filter(None, map(shutil.which, _NAMES)), None)
# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
LAUNCH = """import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for descriptor, number in zip(ours, (3, 4)):
    os.dup2(descriptor, number)
os.execv(sys.argv[3], sys.argv[3:])"""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-features=IsolateSandboxedIframes",  # so that frames of a page can be looked into
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-unsafe-swiftshader",
    "--use-angle=swiftshader",
    "--remote-debugging-pipe",
)


class BrowserError(Exception):
    """What a browser says that went wrong."""


class Browser:
    """One tab, in which pages of the disk are opened.

    Every request that a page makes, and every message in its console, is kept.
    """

    def __init__(self, profile):
        assert BROWSER is not None
        from_us, to_them = os.pipe()
        from_them, to_us = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                LAUNCH,
                str(from_us),
                str(to_us),
                BROWSER,
                *FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(from_us, to_us),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._to, self._from = os.fdopen(to_them, "wb", 0), os.fdopen(from_them, "rb", 0)
        self._unread, self._last = b"", 0
        self.requests, self.console, self.contexts = [], [], []
        try:
            self._attach()
        except BrowserError:
            self.close()
            raise

    def _attach(self):
        target = self._command("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._command("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        self.command(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )

    def close(self):
        self._process.terminate()
        self._process.wait(30)
        self._to.close()
        self._from.close()

    def command(self, method, parameters=None):
        """Send a command to the tab and return its result."""
        return self._command(method, parameters, self._session)

    def open(self, address, width=1280, height=900, scheme="light", scale=1):
        """Open a page, and wait until its script has run."""
        self.requests.clear()
        self.console.clear()
        self.resize(width, height, scale)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", {"features": features})
        self.command("Page.navigate", {"url": "about:blank"})
        self.command("Page.navigate", {"url": address})
        deadline = time.monotonic() + 60
        while self.evaluate("document.readyState") != "complete" and time.monotonic() < deadline:
            time.sleep(0.05)

    def resize(self, width, height, scale=1):
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", metrics)

    def evaluate(self, expression):
        """Return the value of an expression, which may be a promise."""
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self.command("Runtime.evaluate", parameters)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", details).get("description", str(details)))
        return answer["result"].get("value")

    def frames(self):
        """Return the numbers of the frames of the page, itself first."""
        tree = self.command("Page.getFrameTree")["frameTree"]
        return [tree["frame"]["id"], *(f["frame"]["id"] for f in tree.get("childFrames", []))]

    def evaluate_in(self, frame, expression):
        """Return the value of an expression in a frame."""
        contexts = [c["id"] for c in self.contexts if c["auxData"]["frameId"] == frame]
        parameters = {
            "expression": f"(async () => {expression})()",
            "contextId": contexts[-1],
            "awaitPromise": True,
            "returnByValue": True,
        }
        return self.command("Runtime.evaluate", parameters)["result"].get("value")

    def run(self, body):
        """Return what the body of an asynchronous function returns."""
        return self.evaluate(f"(async () => {{ {body} }})()")

    def screenshot(self, path, *, whole=False):
        parameters = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            parameters["clip"] = {**size, "x": 0, "y": 0, "scale": 1}
        data = self.command("Page.captureScreenshot", parameters)["data"]
        path.write_bytes(base64.b64decode(data))

    def press(self, key, code=0, text=""):
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            parameters = {"type": kind, "key": key, "windowsVirtualKeyCode": code}
            self.command("Input.dispatchKeyEvent", parameters | ({"text": text} if text else {}))

    def drag(self, places):
        """Press at the first place, move through all, and release at the last."""
        (x, y), *_ = places
        pointer = {"button": "left", "buttons": 1, "clickCount": 1}
        self._point("mouseMoved", x, y)
        self._point("mousePressed", x, y, **pointer)
        for x, y in places:
            self._point("mouseMoved", x, y, button="left", buttons=1)
        self._point("mouseReleased", x, y, button="left", buttons=0, clickCount=1)

    def hover(self, x, y):
        self._point("mouseMoved", x, y)

    def _point(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y} | more)

    def _command(self, method, parameters=None, session=None):
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[self._to.write(data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        content = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
        elif event.get("method") == "Runtime.executionContextCreated":
            self.contexts.append(content["context"])
        elif event.get("method") == "Log.entryAdded":
            self.console.append(content["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            details = content["exceptionDetails"]
            self.console.append(details.get("exception", details).get("description", str(details)))
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.console.append(str([a.get("value") for a in content["args"]]))

    def _read(self):
        while b"\0" not in self._unread:
            part = self._from.read(2**20)
            if not part:
                raise BrowserError("the browser has ended")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
