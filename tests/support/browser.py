"""A small client of Chromium's own protocol, over the pipe that it offers: no driver and no other package is needed."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser", "sign_in", "violations"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_LIMIT = 60.0


class Browser:
    """One window of a headless Chromium.

    Attributes
    ----------
    errors : list of str
        What the console was told of that is an error: exceptions, and whatever the page's policy refused.
    """

    def __init__(self, folder: Path, width: int = 1100, height: int = 900) -> None:
        (to_read, self._write), (self._read, from_write) = os.pipe(), os.pipe()
        command = [
            CHROMIUM, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
            "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
            *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank",
        ]  # fmt: skip

        # Chromium's ends are its descriptors 3 and 4; they are first moved out of the way of each other.
        script = f'exec 8<&{to_read} 9>&{from_write}; exec "$@" 3<&8 4>&9 8<&- 9>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._asked, self._session = 0, None
        self.errors: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        session, self._session = self._session, None
        with contextlib.suppress(OSError, AssertionError, TimeoutError):
            self.call("Browser.close")
        self._session = session
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; its answer."""
        with self._arrived:
            self._asked += 1
            number = self._asked
            message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
            if self._session:
                message["sessionId"] = self._session
            os.write(self._write, json.dumps(message).encode() + b"\0")
            if not self._arrived.wait_for(lambda: number in self._answers, WAIT_LIMIT):
                raise TimeoutError(f"Chromium did not answer {method}")
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = WAIT_LIMIT) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            value = None
            with contextlib.suppress(AssertionError):  # the page may be changing just now
                value = self.run(f"Boolean({script})")
            if value:
                return
            assert time.monotonic() < end, f"{script} did not come true; the page says: {self.text()}"
            time.sleep(0.05)

    def text(self) -> str:
        return self.run("document.body.innerText")

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        end, before = time.monotonic() + WAIT_LIMIT, None
        while (place := self.place(selector)) != before:  # what loads above it moves it
            assert time.monotonic() < end, f"{selector} does not come to rest"
            before = place
            self.run("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
        x, y, width, height = place
        self.drag([(x + width / 2, y + height / 2)])

    def place(self, selector: str) -> list[float]:
        """Where an element is: left, top, width, height."""
        return self.run(
            f"(() => {{ const r = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [r.left, r.top, r.width, r.height]; })()"
        )

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Press the mouse at the first point, move along the others, release at the last."""
        first, last = points[0], points[-1]
        self._mouse("mouseMoved", first, "none")
        self._mouse("mousePressed", first)
        for point in points[1:]:
            self._mouse("mouseMoved", point)
        self._mouse("mouseReleased", last)

    def touch(self, points: list[tuple[float, float]]) -> None:
        """The same with a finger."""
        for kind, point in [("touchStart", points[0]), *(("touchMove", each) for each in points[1:])]:
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": point[0], "y": point[1]}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, shift: bool = False) -> None:
        held = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **held, **({"text": "\r"} if key == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **held)

    def style_in_frame(self, selector: str) -> dict[str, str]:
        """How an element of the page's frame looks, which has a process of its own as it has no origin."""
        end = time.monotonic() + WAIT_LIMIT
        page, self._session = self._session, None
        try:
            while not (found := self._frames()):
                assert time.monotonic() < end, "the page has no frame with a process of its own"
                time.sleep(0.05)
            self._session = self.call("Target.attachToTarget", targetId=found[0]["targetId"], flatten=True)["sessionId"]
            for domain in ("DOM", "CSS"):
                self.call(f"{domain}.enable")
            while not (node := self._node(selector)):  # its document may be on its way
                assert time.monotonic() < end, f"the frame has no {selector}"
                time.sleep(0.05)
            style = self.call("CSS.getComputedStyleForNode", nodeId=node)["computedStyle"]
            return {each["name"]: each["value"] for each in style}
        finally:
            self._session = page

    def _node(self, selector: str) -> int:
        """The number of an element; 0 where there is none."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        return self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]

    def _frames(self) -> list[dict[str, Any]]:
        targets = self.call("Target.getTargets", filter=[{"type": "iframe"}])["targetInfos"]
        return [target for target in targets if target["url"].startswith("blob:")]

    def choose_file(self, selector: str, path: Path) -> None:
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=self._node(selector))

    def download_to(self, folder: Path) -> None:
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _mouse(self, kind: str, at: tuple[float, float], button: str = "left") -> None:
        held = {"button": button, "buttons": 0 if button == "none" or kind == "mouseReleased" else 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], **held)

    def _listen(self) -> None:
        rest = b""
        while part := os.read(self._read, 1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    with self._arrived:
                        self._answers[message["id"]] = message
                        self._arrived.notify_all()
                elif message["method"] == "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
                elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                    entry = message["params"]["entry"]
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        os.close(self._read)


def sign_in(browser: Browser, running: Any, user: str = "ann", path: str = "/") -> None:
    """Open a page of a service, and give it a token of the user."""
    browser.open(running.url + path)
    browser.wait("document.querySelector('#token')")
    browser.click("#token")
    browser.type(running.token_of(user)[1])
    browser.press("Enter", 13)
    browser.wait("!document.querySelector('#signed-in').hidden")


def violations(browser: Browser) -> list[str]:
    """What axe finds wrong on the page, with the elements. Frames are not searched."""
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.submodule_search_locations, "the extra `test` has axe-core-python"
    if not browser.run("'axe' in window"):
        browser.run((Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    return browser.run(
        "axe.run({ iframes: false, resultTypes: ['violations'] }).then((found) => found.violations"
        ".map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`))"
    )
