"""A timeline as JSON lines, CSV, and the trace format that Perfetto and chrome://tracing open.

Chrome trace: one row for each host thread and one for each device, all times in microseconds from the first event, and an arrow from the
moment a partition was put into the queue to its interval on the device.
"""
import csv
import io
import json

from zkjax.engine.timeline import Event, spans

_HOST, _DEVICES = 1, 2                        # process numbers of the two groups of rows


def to_json_lines(events):
  """One JSON object a line, one line an event, with the fields of Event."""
  return "".join(json.dumps(event._asdict()) + "\n" for event in events)


def from_json_lines(text):
  """The events of `to_json_lines`. Raises ValueError for anything else."""
  try:
    return [Event(**json.loads(line)) for line in text.splitlines() if line]
  except (TypeError, json.JSONDecodeError) as error:
    raise ValueError(f"not a timeline in JSON lines: {error}") from None


def to_csv(events):
  """A header and one row an event; empty where a field does not apply."""
  out = io.StringIO()
  writer = csv.writer(out, lineterminator="\n")
  writer.writerow(Event._fields)
  writer.writerows(["" if value is None else value for value in event] for event in events)
  return out.getvalue()


def to_chrome_trace(events, threads=None):
  """The Chrome trace JSON as a dict: {"traceEvents": [...], "displayTimeUnit": "ms"}.

  Args: events: in time order. threads: {ident: name} of `Timeline.threads`.
  """
  rows, begin = [], events[0].time_ns if events else 0
  at = lambda time_ns: (time_ns - begin) / 1e3
  for span in spans(events):
    where = (_DEVICES, span.device or 0) if span.name == "DEVICE" else (_HOST, span.thread)
    arguments = {"job": span.job, "partition": span.partition, "attempt": span.attempt}
    if span.name == "DEVICE":
      arguments["measured"] = "by the profiler" if span.exact else "estimated"
    # partitions overlap on a device: asynchronous events may, complete ones must nest
    common = {"name": _title(span), "pid": where[0], "tid": where[1], "cat": span.name.lower(), "args": arguments}
    if span.name == "DEVICE":
      name = f"{span.job}.{span.partition}.{span.attempt}"
      rows += [{**common, "ph": "b", "id": name, "ts": at(span.start_ns)}, {**common, "ph": "e", "id": name, "ts": at(span.end_ns)}]
      rows.append(_flow("f", span, at(span.start_ns), where) | {"bp": "e"})
    else:
      rows.append({**common, "ph": "X", "ts": at(span.start_ns), "dur": (span.end_ns - span.start_ns) / 1e3})
  for event in events:
    if not event.name.endswith(("_START", "_END")):
      rows.append({"name": event.name, "ph": "i", "s": "t", "pid": _HOST, "tid": event.thread, "ts": at(event.time_ns),
                   "args": {"job": event.job, "partition": event.partition}})
    if event.name == "QUEUE_PUT":
      rows.append(_flow("s", event, at(event.time_ns), (_HOST, event.thread)))
  return {"traceEvents": _names(events, threads or {}) + sorted(rows, key=lambda row: row["ts"]), "displayTimeUnit": "ms"}


def _title(span):
  if span.name == "STAGE":
    return span.detail
  return span.name.lower() if span.job is None else f"{span.name.lower()} {span.job}.{span.partition}"


def _flow(phase, of, time_us, where):
  return {"name": "queue to device", "cat": "flow", "ph": phase, "id": f"{of.job}.{of.partition}.{of.attempt}", "ts": time_us,
          "pid": where[0], "tid": where[1]}


def _names(events, threads):
  """What the rows are called."""
  meta = lambda name, pid, tid, value: {"name": name, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": {"name": value}}
  used = sorted({event.thread for event in events})
  devices = sorted({event.device for event in events if event.device is not None})
  return ([meta("process_name", _HOST, 0, "host threads"), meta("process_name", _DEVICES, 0, "devices")]
          + [meta("thread_name", _HOST, ident, threads.get(ident, f"thread {ident}")) for ident in used]
          + [meta("thread_name", _DEVICES, device, f"device {device}") for device in devices])
