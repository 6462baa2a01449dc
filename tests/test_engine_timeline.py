"""The timeline: what it records, that it stays bounded, and that its exports can be read back."""
import csv
import io
import json
import re
import threading
import xml.etree.ElementTree

import pytest

from zkjax.engine import export, waterfall
from zkjax.engine.timeline import EVENTS, Event, Timeline, spans, with_measured


def two_partitions():
  """Partition 0 and 1 of job 1, as an engine would record them, in nanoseconds."""
  rows = []
  for at in (0, 1000):
    rows += [(at, "QUEUE_PUT", None), (at + 100, "DEVICE_PICKUP", 0), (at + 110, "DISPATCH_START", 0), (at + 120, "DEVICE_START", 0),
             (at + 130, "STAGE_START", 0), (at + 140, "DISPATCH_END", 0), (at + 900, "STAGE_END", 0), (at + 900, "DEVICE_END", 0)]
  return [Event(t, name, 1, int(t >= 1000), 0, device, 7, "msm_a" if "STAGE" in name else None) for t, name, device in rows]


def test_events_come_back_in_the_order_of_their_times():
  timeline = Timeline()
  timeline.record("SYNTH_START", 3, 0)
  timeline.record("COMPILE_START", time_ns=5)
  timeline.record("SYNTH_END", 3, 0)
  times = [event.time_ns for event in timeline.events()]
  assert times == sorted(times) and [event.name for event in timeline.events()] == ["COMPILE_START", "SYNTH_START", "SYNTH_END"]


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="GPU_START"):
    Timeline().record("GPU_START")


def test_memory_is_bounded_and_the_loss_is_told():
  timeline = Timeline(capacity=10)
  for partition in range(25):
    timeline.record("QUEUE_PUT", 1, partition)
  assert [event.partition for event in timeline.events()] == list(range(15, 25)) and timeline.dropped == 15


def test_a_timeline_without_capacity_records_nothing():
  timeline = Timeline(capacity=0)
  assert timeline.record("QUEUE_PUT", 1, 1) is None and not timeline.events() and not timeline.dropped
  with pytest.raises(ValueError, match="negative"):
    Timeline(capacity=-1)


def test_threads_lose_no_events_and_are_named():
  timeline = Timeline()

  def work():
    for partition in range(1000):
      with timeline.span("SYNTH", job=0, partition=partition):
        pass
  threads = [threading.Thread(target=work, name=f"synthesis {k}") for k in range(4)]
  [thread.start() for thread in threads]
  [thread.join() for thread in threads]
  assert len(timeline) == 8000 and len(spans(timeline.events())) == 4000
  assert set(timeline.threads.values()) <= {f"synthesis {k}" for k in range(4)}


def test_a_span_ends_even_if_its_block_raises():
  timeline = Timeline()
  with pytest.raises(KeyError), timeline.span("FINISH", job=1, partition=2):
    raise KeyError
  (span,) = spans(timeline.events())
  assert (span.name, span.job, span.partition) == ("FINISH", 1, 2)


def test_spans_of_two_partitions_do_not_mix():
  found = [(span.name, span.partition, span.start_ns, span.end_ns) for span in spans(two_partitions()) if span.name == "DEVICE"]
  assert found == [("DEVICE", 0, 120, 900), ("DEVICE", 1, 1120, 1900)]


def test_what_never_ended_is_no_span():
  assert not spans([Event(1, "DEVICE_START", 1, 1, 0, 0), Event(2, "DEVICE_END", 1, 2, 0, 0)])


def test_measured_times_replace_the_estimated_ones():
  events = with_measured(two_partitions(), {(1, 1, 0): (1150, 1850)})
  found = {span.partition: span for span in spans(events) if span.name == "DEVICE"}
  assert (found[1].start_ns, found[1].end_ns, found[1].exact) == (1150, 1850, True)
  assert (found[0].start_ns, found[0].end_ns, found[0].exact) == (120, 900, False)


def test_json_lines_are_read_back():
  events = two_partitions()
  text = export.to_json_lines(events)
  assert export.from_json_lines(text) == events and text.count("\n") == len(events)
  with pytest.raises(ValueError, match="JSON lines"):
    export.from_json_lines('{"when": 1}\n')


def test_csv_has_a_row_for_each_event():
  rows = list(csv.DictReader(io.StringIO(export.to_csv(two_partitions()))))
  assert len(rows) == len(two_partitions()) and rows[0]["name"] == "QUEUE_PUT" and rows[0]["device"] == ""


def test_chrome_trace_has_rows_for_threads_and_devices_and_flows_between_them():
  trace = json.loads(json.dumps(export.to_chrome_trace(two_partitions(), {7: "dispatch"})))
  rows = trace["traceEvents"]
  assert {row["args"]["name"] for row in rows if row["name"] == "thread_name"} == {"dispatch", "device 0"}
  assert {row["id"] for row in rows if row["ph"] == "s"} == {row["id"] for row in rows if row["ph"] == "f"} == {"1.0.0", "1.1.0"}
  stages = [row for row in rows if row["name"] == "msm_a"]
  assert [(row["ts"], row["dur"]) for row in stages] == [(0.13, 0.77), (1.13, 0.77)]
  assert sum(row["ph"] == "b" for row in rows) == sum(row["ph"] == "e" for row in rows) == 2
  assert export.to_chrome_trace([])["traceEvents"]


def test_the_waterfall_is_one_file_with_a_row_for_each_partition():
  page = waterfall.to_html(two_partitions(), title="<run> & more")
  assert "<run>" not in page and "&lt;run&gt; &amp; more" in page and "src=" not in page and "href=" not in page
  picture = re.search(r"<svg.*</svg>", page, re.S).group()
  labels = [node.text for node in xml.etree.ElementTree.fromstring(picture).iter() if node.tag.endswith("text")]
  assert labels[1:] == ["job 1, partition 0", "job 1, partition 1"] and labels[0].startswith("device 0")
  assert "Nothing" in waterfall.to_html([])


def test_names_say_what_they_bracket():
  assert {"SYNTH_START", "SYNTH_END", "QUEUE_PUT", "DEVICE_PICKUP", "DISPATCH_START", "DISPATCH_END", "DEVICE_START", "DEVICE_END",
          "FINISH_START", "FINISH_END", "VERIFY_START", "SERIALIZE_END", "LOCK_WAIT_START", "LOCK_WAIT_END"} <= EVENTS
