"""Writes the speed tables of README.md and the plot cpu.svg from the measurements in cpu.json and h200.json.

  python benchmarks/report.py

cpu.json holds {"rows": [...]} as `benchmarks/measure_cpu.py` and `examples/benchmark.py --json=benchmarks/cpu.json` add them, h200.json as
`profiles/h200.py` does. The tables stand between marker lines of the README; the plot shows how the CPU time of each operation grows with
its size, both axes logarithmic.
"""
import json
import math
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- {} of benchmarks/report.py -->\n", "<!-- end of {} -->\n"
WIDTH, HEIGHT, MARGIN = 760, 460, 60
COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#555555", "#17a2b8", "#7d5a3c")


def main():
  load = lambda name: json.loads((HERE / name).read_text())["rows"]
  text = README.read_text()
  for name, table in (("cpu", cpu_tables(load("cpu.json"))), ("gpu", gpu_table(load("h200.json"), load("sppark.json")))):
    head, rest = text.split(BEGIN.format(name))
    text = head + BEGIN.format(name) + table + END.format(name) + rest.split(END.format(name))[1]
  README.write_text(text)
  (HERE / "cpu.svg").write_text(plot(load("cpu.json")))


def gpu_table(rows, peers):
  """Markdown: milliseconds on the GPU beside sppark's."""
  peers = {(p["op"], p["log2_size"], p["scalars"]): p for p in peers}
  lines = ["| work | zkjax ms (spread) | alone, ms | part of the chip's peak | sppark ms, as shipped / tuned |", "|---|---|---|---|---|"]
  for r in sorted(rows, key=lambda r: (r["op"], -r["log2_size"], str(r["bases"]), str(r["scalars"]))):
    peer = peers.get((r["op"], r["log2_size"], r["scalars"]), {})
    times = " / ".join(number(peer[k]) for k in ("shipped_ms", "tuned_ms") if peer.get(k))
    share = f"{r['percent_of_peak']:.0f} %" if r["percent_of_peak"] else ""
    batch = f"{r['batch']} of them" if r["batch"] > 1 else None
    work = f"{r['op'].replace('_', ' ')} 2^{r['log2_size']}"
    name = ", ".join(filter(None, (work, r["bases"] and f"{r['bases']} bases", r["scalars"], batch)))
    spread = f"{number(r['median_ms'])} ({number(r['min_ms'])} to {number(r['max_ms'])})"
    alone = number(r["single_call_ms"]) if r.get("single_call_ms") else ""
    lines.append(f"| {name} | {spread} | {alone} | {share} | {times} |")
  starts = [f"{number(r['start_median_ms'])} ({number(r['start_min_ms'])} to {number(r['start_max_ms'])}) ms for 2^{r['log2_size']}"
            for r in rows if r.get("start_median_ms")]
  lines += [f"\nOf the host's time `start` takes {' and '.join(starts)}."] if starts else []
  versions, devices = sorted({r["jax"] for r in rows}), sorted({r["device"] for r in rows})
  commits = sorted({str(r["commit"]) for r in rows})
  return "\n".join(lines) + f"\n\n{' and '.join(devices)}, JAX {', '.join(versions)}, commits {', '.join(commits)}.\n"


def cpu_tables(rows):
  """Markdown: what was measured beside a peer, then what grows, CPU seconds by size."""
  compared = sorted((r for r in rows if r["peer"]), key=lambda r: (not r["work"].startswith("process"), r["work"], r["jax"]))
  lines = ["| work | wall s | CPU s | peer, wall s | peer, CPU s | peer / zkjax in CPU s (spread) | peak MB |", "|---|" + "---|" * 6]
  for r in compared:
    low, high = r["ratio_spread"]
    cells = (label(r), number(r["wall_seconds"]), number(r["cpu_seconds"]), f"{r['peer']} {number(r['peer_wall_seconds'])}",
             number(r["peer_cpu_seconds"]), f"{r['ratio']:.1f} ({low:.1f} to {high:.1f})", f"{r['peak_rss_mb']:.0f}")
    lines.append("| " + " | ".join(cells) + " |")
  series = growing(rows)
  sizes = sorted({size for points in series.values() for size in points})
  lines += ["", "| CPU s | " + " | ".join(f"2^{s}" for s in sizes) + " |", "|---|" + "---|" * len(sizes)]
  for name, points in series.items():
    lines.append(f"| {name} | " + " | ".join(number(points[s]["cpu_seconds"]) if s in points else "" for s in sizes) + " |")
  devices, versions = sorted({r["device"] for r in rows}), sorted({r["jax"] for r in rows})
  commits = sorted({str(r["commit"]) for r in rows})
  return "\n".join(lines) + f"\n\nMedians on {' and '.join(devices)}, JAX {', '.join(versions)}, commits {', '.join(commits)}.\n"


def label(row):
  """A reader's name of a row that has a peer."""
  kind, _, name = row["work"].partition("_")
  kinds = {"process": f"{name}, whole process", "prove": f"{name}, proof in a warm process"}
  return kinds.get(kind, f"{row['work'].replace('_', ' ')}, 2^{row['log2_size']}")


def growing(rows):
  """{work: {log2_size: row}} of every work that was measured at two sizes or more."""
  series = {}
  for r in sorted(rows, key=lambda r: r["work"]):
    if r["log2_size"] is not None and (not r["peer"] or r["work"].startswith("msm")):
      series.setdefault(r["work"].replace("_", " "), {})[r["log2_size"]] = r
  return {name: points for name, points in series.items() if len(points) > 1}


def number(seconds):
  """Three significant digits."""
  return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def plot(rows):
  """SVG of CPU seconds over size."""
  series = {name: sorted((size, r["cpu_seconds"]) for size, r in points.items()) for name, points in growing(rows).items()}
  sizes = [x for points in series.values() for x, _ in points]
  times = [math.log10(y) for points in series.values() for _, y in points]
  low, high, bottom, top = min(sizes), max(sizes), math.floor(min(times)), math.ceil(max(times))
  across = lambda x: MARGIN + (x - low) / (high - low) * (WIDTH - 2 * MARGIN - 160)
  up = lambda y: HEIGHT - MARGIN - (y - bottom) / (top - bottom) * (HEIGHT - 2 * MARGIN)
  out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
         f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
         f'<text x="{MARGIN}" y="24">CPU seconds over size, both logarithmic</text>']
  for x in range(low, high + 1):
    out.append(f'<line x1="{across(x):.0f}" x2="{across(x):.0f}" y1="{up(bottom):.0f}" y2="{up(top):.0f}" stroke="#ddd"/>'
               f'<text x="{across(x) - 10:.0f}" y="{up(bottom) + 18:.0f}">2^{x}</text>')
  for y in range(bottom, top + 1):
    out.append(f'<line x1="{across(low):.0f}" x2="{across(high):.0f}" y1="{up(y):.0f}" y2="{up(y):.0f}" stroke="#ddd"/>'
               f'<text x="8" y="{up(y) + 4:.0f}">10^{y} s</text>')
  for (name, points), color in zip(series.items(), COLORS * len(series)):
    path = " ".join(f"{across(x):.1f},{up(math.log10(y)):.1f}" for x, y in points)
    x, y = points[-1]
    out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
               f'<text x="{across(x) + 6:.0f}" y="{up(math.log10(y)) + 4:.0f}" fill="{color}">{name}</text>')
  return "\n".join(out + ["</svg>"]) + "\n"


if __name__ == "__main__":
  main()
