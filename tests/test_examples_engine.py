"""The scripts around the engine, as a user runs them on the smallest circuit."""
import json
import re
import sys
import urllib.error
import urllib.request

import pytest
from test_examples import MUL, REJECTED, ROOT, run

from zkjax.engine import Engine, export
from zkjax.engine.gaps import CAUSES, KINDS, PHASES

SMALL = f"--zkey={MUL / 'mul.zkey'}", f"--wtns={MUL / 'witness.wtns'}"
KEYS = {"proofs_per_minute", "device_busy_share", "gaps", "claimed_vs_measured_percent", "parts_vs_wall_percent", "verified"}


def test_pipeline_writes_its_report_and_files(tmp_path):
  jsonl, page, numbers, trace = (tmp_path / name for name in ("run.jsonl", "run.html", "run.json", "trace"))
  text = run("pipeline", *SMALL, "--jobs=2", "--partitions=2", f"--timeline={jsonl}", f"--waterfall={page}", f"--json={numbers}",
             f"--trace_dir={trace}", "--compare", expect=0)
  data = json.loads(numbers.read_text())
  assert data.keys() >= KEYS and data["verified"] is True and data["proofs_per_minute"] > 0 and data["ratio_to_loop"] > 0
  assert set(data["device_busy_share"]) == set(PHASES) and set(data["gaps"]) == set(KINDS)
  assert all(set(causes) == set(CAUSES) for causes in data["gaps"].values())
  assert 0 < data["claimed_vs_measured_percent"] and data["device_time"] == "measured"
  assert len({event[2:4] for event in export.from_json_lines(jsonl.read_text()) if event.partition is not None}) == 4
  assert page.read_text().count("partition 1</text>") == 2 and list(trace.rglob("*.xplane.pb"))
  assert "verified" in text and "cold start" in text and "measured by the profiler" in text


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_pipeline_in_attribution_mode(suffix, tmp_path):
  timeline = tmp_path / f"run.{suffix}"
  text = run("pipeline", *SMALL, "--jobs=1", "--partitions=2", "--mode=attribution", f"--timeline={timeline}", expect=0)
  assert "stage times are real, overlap is not" in text and "quotient" in timeline.read_text()


def test_pipeline_on_the_shipped_circuit_without_a_record():
  text = run("pipeline", "--jobs=1", "--partitions=1", "--norecord", "--synth_wait=0.01", "--synth_compute=0.01", "--synth_processes",
             "--verify_processes", expect=0)
  assert "purchase" in text and "verified" in text and "cold start" not in text


def test_pipeline_tells_false_from_wrong(tmp_path):
  wrong = f"--wtns={REJECTED / 'wtns_wrong_private.wtns'}"
  assert "FALSE" in run("pipeline", SMALL[0], wrong, "--jobs=1", "--partitions=1", expect=1)
  assert "--wtns missing" in run("pipeline", SMALL[0], expect=2)
  assert "ends in" in run("pipeline", f"--timeline={tmp_path / 'run.txt'}", expect=2)
  assert "--norecord" in run("pipeline", "--norecord", f"--waterfall={tmp_path / 'run.html'}", expect=2)
  assert "--devices=9" in run("pipeline", "--devices=9", expect=2)


def test_the_status_page_is_served_on_loopback_only():
  sys.path.insert(0, str(ROOT / "examples"))
  import status_page
  with Engine() as engine, status_page.serve(engine, 0) as url:
    assert url.startswith("http://127.0.0.1:")
    read = lambda path: urllib.request.urlopen(url + path, timeout=10).read().decode()
    assert "<title>" in read("") and json.loads(read("status"))["jobs"]["submitted"] == 0
    assert "zkjax_proofs_total 0" in read("metrics")
    with pytest.raises(urllib.error.HTTPError):
      read("etc/passwd")
    with status_page.serve(engine, None) as nothing:
      assert nothing is None


def test_profile_prints_dispatch_beside_kernels(tmp_path):
  numbers = tmp_path / "numbers.json"
  text = run("profile", *SMALL, f"--profiles={tmp_path}", "--name=tiny", f"--json={numbers}", expect=0)
  data = json.loads(numbers.read_text())
  assert list((tmp_path / "tiny").rglob("*.xplane.pb")) and "dispatch" in text and "kernels" in text
  assert set(data["operations"]) == {"fr_mul", "ntt", "quotient", "msm_a", "msm_b_g2"} and "quotient" in data["stages"]
  assert all(times["kernel_seconds"] <= times["dispatch_seconds"] + times["wait_seconds"] for times in data["operations"].values())


def test_the_pitfall_shows_three_clocks(tmp_path):
  numbers = tmp_path / "numbers.json"
  text = run("measurement_pitfall", *SMALL, "--proofs=3", f"--json={numbers}", expect=0)
  assert [line[:2] for line in text.splitlines() if re.match(r"\d\. ", line)] == ["1.", "2.", "3."]
  data = json.loads(numbers.read_text())
  assert data["device_busy_share"] <= 1 and data["queue_to_bytes_stopwatch_seconds"] > data["device_seconds_per_proof"] > 0


@pytest.mark.parametrize("script", ["pipeline", "profile", "measurement_pitfall"])
def test_help(script):
  text = run(script, "--help", expect=0)
  assert f"python examples/{script}.py" in text and "Exit code" in text and max(map(len, text.splitlines())) <= 140

