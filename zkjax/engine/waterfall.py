"""A timeline as one picture: a row for each partition, a lane for each device, in one HTML file that needs nothing else."""
import html

from zkjax.engine.gaps import analyze, merged
from zkjax.engine.timeline import spans

_COLORS = {"SYNTH": "#7aa6c2", "queue": "#e3dcc8", "KEY_LOAD": "#b07aa1", "TRANSFER": "#9c755f", "LOCK_WAIT": "#d9cfe8",
           "DISPATCH": "#edc948", "DEVICE": "#59a14f", "COMPILE": "#e15759", "FINISH": "#f28e2b",
           "SERIALIZE": "#ff9da7", "VERIFY": "#4e79a7"}
_GAPS = {"cold_start": "#e15759", "cross_job": "#b07aa1", "partition": "#f28e2b", "tail": "#bab0ac"}
_LEFT, _WIDTH, _ROW = 110, 1000, 13           # pixels


def to_html(events, title="zkjax engine"):
  """The waterfall as the text of an HTML file: devices on top with their idle intervals by class, then the partitions in order.

  Args: events: of a Timeline, in time order. title: of the page; it is escaped.
  """
  found = [span for span in spans(events) if span.partition is not None]
  if not found:
    return _page(title, "<p>Nothing was recorded.</p>")
  begin, end = events[0].time_ns, events[-1].time_ns
  scale = _WIDTH / max(1, end - begin)
  draw = _Drawing(begin, scale)
  analysis = analyze(events)
  for device, use in sorted(analysis.devices.items()):
    draw.row(f"device {device}, {use.busy_share:.0%} busy")
    for start, stop in use.busy:
      draw.bar(start, stop, _COLORS["DEVICE"], "busy")
    for gap in use.gaps:
      draw.bar(gap.start_ns, gap.end_ns, _GAPS[gap.kind], f"idle, {gap.kind}, {gap.cause}", low=True)
  puts = {event[2:5]: event.time_ns for event in events if event.name == "QUEUE_PUT"}
  picks = {event[2:5]: event.time_ns for event in events if event.name == "DEVICE_PICKUP"}
  rows = {}
  for span in found:
    rows.setdefault((span.job, span.partition), []).append(span)
  for (job, partition), of_row in sorted(rows.items()):
    draw.row(f"job {job}, partition {partition}")
    for key in sorted(key for key in puts if key[:2] == (job, partition)):
      draw.bar(puts[key], picks.get(key, puts[key]), _COLORS["queue"], "in the queue")
    for span in sorted(of_row, key=lambda span: span.name == "COMPILE"):
      if span.name in _COLORS and span.name != "COMPILE":
        draw.bar(span.start_ns, span.end_ns, _COLORS[span.name], span.name.lower())
    for start, stop in merged((span.start_ns, span.end_ns) for span in of_row if span.name == "COMPILE"):
      draw.bar(start, stop, _COLORS["COMPILE"], "compile", low=True)
  seconds = (end - begin) / 1e9
  legend = "".join(f'<span><i style="background:{color}"></i>{name.lower()}</span>' for name, color in (_COLORS | _GAPS).items())
  return _page(title, f"<p>{seconds:.3f} s from left to right. Times are in milliseconds; point at a bar.</p><p>{legend}</p>{draw.svg()}")


class _Drawing:
  """An SVG that grows by rows."""

  def __init__(self, begin, scale):
    self.begin, self.scale, self.y, self.parts = begin, scale, -_ROW, []

  def row(self, label):
    self.y += _ROW
    self.parts.append(f'<text x="{_LEFT - 6}" y="{self.y + _ROW - 3}" text-anchor="end">{html.escape(label)}</text>')

  def bar(self, start, stop, color, what, low=False):
    """A bar with its times to point at; `low` ones leave the upper half of the row free."""
    x, width = _LEFT + (start - self.begin) * self.scale, max(0.3, (stop - start) * self.scale)
    top, height = (self.y + _ROW / 2, _ROW / 2 - 1) if low else (self.y + 1, _ROW - 2)
    tip = f"{what}: {(stop - start) / 1e6:.2f} from {(start - self.begin) / 1e6:.2f}"
    self.parts.append(f'<rect x="{x:.2f}" y="{top:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{color}"><title>{html.escape(tip)}'
                      "</title></rect>")

  def svg(self):
    height = self.y + _ROW
    return (f'<svg viewBox="0 0 {_LEFT + _WIDTH} {height}" width="100%" xmlns="http://www.w3.org/2000/svg" font-size="8">'
            f'{"".join(self.parts)}</svg>')


def _page(title, body):
  return ('<!DOCTYPE html><html><head><meta charset="utf-8"><title>' + html.escape(title) + "</title><style>body{font:13px sans-serif;"
          "margin:1em}span{margin-right:1em}i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}</style></head><body><h1>"
          + html.escape(title) + "</h1>" + body + "</body></html>\n")
