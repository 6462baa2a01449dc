"""The analysis of a run as text: phases, gaps by class and cause, and where the time of a partition went."""
import statistics

from zkjax.engine.gaps import CAUSES, KINDS, PARTS, PHASES

_TITLES = {"cold_start": "cold start", "cross_job": "cross-job stall", "partition": "per-partition overhead",
           "tail": "tail, another device busy"}


def report(analysis, mode="throughput", dropped=0):
  """A table of lines for people.

  Args: analysis: of `gaps.analyze`. mode: "throughput" (nothing blocks) or "attribution" (every stage blocks), which is printed with what
  it means. dropped: `Timeline.dropped`; a record with a hole is reported as such.
  """
  if not analysis.devices:
    return "no partition reached a device\n"
  kind = "measured by the profiler" if analysis.exact else "estimated on the host"
  means = {"throughput": "nothing blocks: overlap is real, stage times overlap and do not add up",
           "attribution": "every stage waits for the one before: stage times are real, overlap is not"}[mode]
  lines = [f"mode      {mode}: {means}", f"device    times are {kind}; busy is the union of intervals, without compiling"]
  if dropped:
    lines.append(f"WARNING   {dropped} events are no longer in the timeline: the beginning of the run is missing")
  lines += _phases(analysis) + _gaps(analysis) + _partitions(analysis)
  return "\n".join(lines) + "\n"


def _phases(analysis):
  lines = ["", f"{'phase':<28}{'seconds':>10}{'device busy':>14}"]
  for name in PHASES:
    start, end = analysis.phases[name]
    share = analysis.busy_share[name]
    lines.append(f"{name:<28}{(end - start) / 1e9:>10.3f}{'-' if share is None else f'{share:.1%}':>14}")
  per_proof = analysis.steady_seconds_per_proof
  if per_proof is not None:
    lines.append(f"{'seconds per proof, steady':<28}{per_proof:>10.3f}")
  return lines


def _gaps(analysis):
  lines = ["", f"{'device idle, % of the run':<28}" + "".join(f"{cause:>12}" for cause in CAUSES)]
  for kind in KINDS:
    lines.append(f"{_TITLES[kind]:<28}" + "".join(f"{analysis.gap_share[kind][cause]:>12.2%}" for cause in CAUSES))
  return lines


def _partitions(analysis):
  times = analysis.partitions
  middle = lambda values: f"{statistics.median(values) * 1e3:>12.2f}{max(values) * 1e3:>12.2f}"
  lines = ["", f"{'per partition, ms':<28}{'median':>12}{'largest':>12}"]
  lines += [f"{part:<28}{middle([t.parts[part] for t in times])}" for part in PARTS]
  lines.append(f"{'unexplained':<28}{middle([abs(t.unexplained_seconds) for t in times])}")
  lines.append(f"{'wall':<28}{middle([t.wall_seconds for t in times])}")
  names = list(dict.fromkeys(name for t in times for name in t.stages))
  if names:
    lines += ["", f"{'stages on the device, ms':<28}{'median':>12}{'largest':>12}"]
    lines += [f"{name:<28}{middle([t.stages.get(name, 0.0) for t in times])}" for name in names]
  return lines
