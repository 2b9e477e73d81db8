"""Chromium without a screen, driven through chromedriver: HTTP with JSON, as the W3C's WebDriver has it."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name of a reference
_SECONDS = 60
_PATIENCE = 20
KEYS = {"Home": "\ue011", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Enter": "\ue007",
        "Escape": "\ue00c", "Tab": "\ue004"}


def missing():
    """Why no browser can be driven here; None where one can."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"no {' and no '.join(absent)}: tools/setup --checks installs them" if absent else None


class Browser:

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "HOME": self._folder.name, "TMPDIR": self._folder.name})
        try:
            port = next(line.split()[-1].rstrip(".") for line in self._driver.stdout if "successfully on port" in line)
            self._at = f"http://127.0.0.1:{port}/session"
            options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                                "--disable-dev-shm-usage",
                                f"--user-data-dir={self._folder.name}/profile"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = self._send("POST", "", {"capabilities": {"alwaysMatch": wanted}})
            self._at += "/" + session["sessionId"]
            self.resize()
        except BaseException:
            self._end()
            raise

    def _send(self, method, command, content=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._at + command, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error

    def _end(self):
        self._driver.terminate()
        self._driver.communicate()
        self._folder.cleanup()

    def close(self):
        try:
            self._send("DELETE", "")
        finally:
            self._end()

    def resize(self, width=1500, height=900):
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def open(self, path):
        self._send("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments):
        """The value of a script, once it is true: a page draws when the browser asks it to."""
        end = time.monotonic() + _PATIENCE
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"it never became true: {script}")

    def find(self, selector):
        return self._send("POST", "/element", {"using": "css selector", "value": selector})

    def _point(self, actions):
        self._send("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def _move(self, selector, x, y):
        """To a place relative to the middle of an element."""
        return {"type": "pointerMove", "origin": self.find(selector), "x": x, "y": y}

    def click(self, selector, x=0, y=0):
        self._point([self._move(selector, x, y), {"type": "pointerDown", "button": 0},
                     {"type": "pointerUp", "button": 0}])

    def press(self, *keys):
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def type(self, selector, text):
        element = self.find(selector)[_ELEMENT]
        self._send("POST", f"/element/{element}/clear", {})
        self._send("POST", f"/element/{element}/value", {"text": text})

    def wheel(self, selector, distance):
        action = {"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": distance, "origin": self.find(selector)}
        self._send("POST", "/actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [action]}]})

    def drag(self, selector, distance):
        there = {**self._move(selector, distance, 0), "duration": 50}
        self._point([self._move(selector, 0, 0), {"type": "pointerDown", "button": 0}, there,
                     {"type": "pointerUp", "button": 0}])

    def hover(self, selector, x, y):
        self._point([self._move(selector, x, y)])

    def console(self):
        """What came since the last call: errors, warnings and whatever else a script writes."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def devtools(self, command, parameters):
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self):
        return base64.b64decode(self._send("GET", "/screenshot"))
