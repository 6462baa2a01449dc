"""The shipped trace in TensorBoard, as a person sees it: a browser opens the trace viewer and looks for our stages."""
import contextlib
import fcntl
import importlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

TRACE = pathlib.Path(__file__).resolve().parents[1] / "profiles" / "cpu_mul"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 120
pytestmark = [
    pytest.mark.skipif(not all(map(importlib.util.find_spec, ("tensorboard", "xprof"))), reason="needs pip install '.[profile]'"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
STAGES = importlib.import_module("zkjax.groth16.prove").STAGES

# The elements of the page lie in shadow trees.
_WALK = "const all = []; const walk = n => { all.push(n); n.shadowRoot && walk(n.shadowRoot); for (const c of n.childNodes) walk(c); };"
_TEXT = f"(() => {{ {_WALK} walk(document.body); return all.filter(n => n.nodeType == 3).map(n => n.textContent).join(' '); }})()"
_FOCUS = f"(() => {{ {_WALK} walk(document.body); const i = all.find(n => n.id == 'filter'); i.focus(); i.select(); return true; }})()"


@contextlib.contextmanager
def ended(process):
  """Ends a process after the block, or after SECONDS: what waits for its output then fails."""
  timer = threading.Timer(SECONDS, process.kill)
  timer.start()
  try:
    yield process
  finally:
    timer.cancel()
    process.kill()
    process.wait()


@contextlib.contextmanager
def tensorboard(folder):
  """The address of a TensorBoard on loopback."""
  command = [sys.executable, "-m", "tensorboard.main", f"--logdir={folder}", "--host=127.0.0.1", "--port=0"]
  with ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)) as process:
    address = next((found[0] for line in process.stderr if (found := re.findall(r"http://127\.0\.0\.1:\d+", line))), None)
    assert address, "TensorBoard did not start"
    threading.Thread(target=process.stderr.read, daemon=True).start()
    yield address


class Page:
  """A page of a headless Chromium, driven through two pipes: DevTools protocol, JSON texts that end in a zero byte."""

  def __init__(self, requests, answers):
    self._requests, self._answers, self._rest, self._number, self._where = requests, answers, b"", 0, {}
    (page,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
    self._where = {"sessionId": self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]}

  @classmethod
  @contextlib.contextmanager
  def opened(cls, folder):
    """Starts the browser."""
    to_it, requests = os.pipe()
    answers, from_it = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (to_it, from_it)]       # the browser takes 3 and 4, which may be in use
    connect = "import os, sys; [os.dup2(int(a), b) for a, b in zip(sys.argv[1:], (3, 4))]; os.execv(sys.argv[3], sys.argv[3:])"
    command = [sys.executable, "-c", connect, *map(str, high),
               CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1200",
               "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, pass_fds=high, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for end in (to_it, from_it, *high):
      os.close(end)
    with ended(process), os.fdopen(requests, "wb", buffering=0) as write, os.fdopen(answers, "rb", buffering=0) as read:
      yield cls(write, read)

  def call(self, method, **params):
    """The result of a command."""
    self._number += 1
    self._requests.write(json.dumps({"id": self._number, "method": method, "params": params} | self._where).encode() + b"\0")
    while True:
      while b"\0" not in self._rest:
        data = self._answers.read(1 << 16)
        assert data, "the browser ended"
        self._rest += data
      text, _, self._rest = self._rest.partition(b"\0")
      if (answer := json.loads(text)).get("id") == self._number:
        return answer["result"]

  def evaluate(self, script):
    """The value of a script, None if it raised."""
    return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

  def until(self, script, holds):
    """The value of a script once it `holds`."""
    for _ in range(10 * SECONDS):
      if holds(value := self.evaluate(script)):
        return value
      time.sleep(0.1)
    raise AssertionError(f"the page does not show it: {value}")

  def type(self, text):
    """Into what has the focus, and Enter."""
    self.call("Input.insertText", text=text)
    for kind in ("keyDown", "keyUp"):
      self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"[:kind == "keyDown"])


def test_the_trace_viewer_finds_every_stage_of_both_partitions(tmp_path):
  folder = tmp_path / "profiles" / "cpu_mul"
  shutil.copytree(TRACE, folder)               # the plugin writes beside a trace
  (file,) = folder.rglob("*.xplane.pb")
  host, plugin = file.name.removesuffix(".xplane.pb"), "/data/plugin/profile"
  data = urllib.parse.quote(f"{plugin}/data?run=cpu_mul/{file.parent.name}&tag=trace_viewer@&host={host}", safe="")
  with tensorboard(folder.parent) as address, Page.opened(tmp_path / "browser") as page:
    url = f"{address}{plugin}/trace_viewer_index.html?is_streaming=true&is_oss=true&trace_data_url={data}"
    page.call("Page.navigate", url=url)
    page.until(_TEXT, lambda text: text and "/host:CPU" in text)
    for stage in STAGES:
      for name, count in ((stage, 2), ("no such stage", 0)):
        assert page.evaluate(_FOCUS)
        page.type(name)
        page.until(_TEXT, lambda text, count=count: re.search(rf"\b\d+ of {count}\b", text))
