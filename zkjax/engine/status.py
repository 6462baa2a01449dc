"""Live numbers of an engine, as a dict and in Prometheus' text format."""
import collections
import time

from zkjax.engine.jobs import State


def status(core, workers, seconds):
  """The state of an engine as a dict that JSON can hold.

  Args: core: Core. workers: DeviceWorkers. seconds: since the engine began.

  Returns a dict with
    seconds: since the engine began; stopped: whether it has ended.
    jobs: counts of jobs submitted, done, failed, cancelled and expired, proofs returned, retries of partitions, and running jobs.
    partitions: {state: count} of the running jobs' partitions, for every State.
    queues: waiting (for admission), admitted (past it and not on a device), ready (for a device), max_admitted.
    host: bytes_reserved, bytes_peak, bytes_total (None: no bound).
    devices: for each in_flight, load, partitions_done, dispatches, keys resident, loaded and evicted, and bytes as for the host.
    grid: for each running job, in order, number, job_id, priority, age_seconds and the state of each partition.
    timeline: events kept and dropped.
  """
  with core.changed:
    running = sorted(core.running.values(), key=lambda job: (-job.job.priority, job.number))
    states = collections.Counter(partition.state for job in running for partition in job.latest)
    now = time.monotonic()
    return {
        "seconds": seconds, "stopped": core.stopped,
        "jobs": core.counts | {"running": len(running)},
        "partitions": {state.value: states[state] for state in State},
        "queues": {"waiting": len(core.waiting), "admitted": core.admitted, "ready": len(core.ready), "max_admitted": core.max_admitted},
        "host": {"bytes_reserved": core.host.reserved, "bytes_peak": core.host.peak, "bytes_total": core.host.total},
        "devices": [worker.status() for worker in workers],
        "grid": [{"number": job.number, "job_id": job.job.job_id, "priority": job.job.priority, "age_seconds": now - job.submitted,
                  "partitions": [partition.state.value for partition in job.latest]} for job in running],
        "timeline": {"events": len(core.timeline), "dropped": core.timeline.dropped},
    }


def prometheus_text(numbers):
  """The numbers of `status` as Prometheus' text format, version 0.0.4. Job ids are left out: a label for each would never end."""
  lines = []

  def metric(name, kind, meaning, samples):
    lines.extend([f"# HELP zkjax_{name} {meaning}", f"# TYPE zkjax_{name} {kind}"])
    lines.extend(f"zkjax_{name}{_labels(labels)} {value}" for labels, value in samples if value is not None)

  metric("uptime_seconds", "gauge", "Seconds since the engine began.", [({}, numbers["seconds"])])
  metric("jobs_total", "counter", "Jobs by what became of them.",
         [({"outcome": name}, numbers["jobs"][name]) for name in ("submitted", "done", "failed", "cancelled", "expired")])
  metric("jobs_running", "gauge", "Jobs that are not over.", [({}, numbers["jobs"]["running"])])
  metric("proofs_total", "counter", "Proofs returned.", [({}, numbers["jobs"]["proofs"])])
  metric("retries_total", "counter", "Partitions that had to be proved again.", [({}, numbers["jobs"]["retries"])])
  metric("partitions", "gauge", "Partitions of running jobs by state.", [({"state": k}, v) for k, v in numbers["partitions"].items()])
  metric("queue_length", "gauge", "Partitions in a queue.", [({"queue": name}, numbers["queues"][name]) for name in ("waiting", "ready")])
  devices = list(enumerate(numbers["devices"]))
  metric("device_in_flight", "gauge", "Dispatches on a device.", [({"device": k}, d["in_flight"]) for k, d in devices])
  done = [({"device": k}, d["partitions_done"]) for k, d in devices]
  metric("device_partitions_total", "counter", "Partitions that left a device.", done)
  metric("device_keys", "gauge", "Keys resident on a device.", [({"device": k}, d["keys"]) for k, d in devices])
  metric("key_loads_total", "counter", "Keys made resident.", [({"device": k}, d["key_loads"]) for k, d in devices])
  metric("key_evictions_total", "counter", "Keys evicted.", [({"device": k}, d["key_evictions"]) for k, d in devices])
  memory = [({"where": "host"}, numbers["host"])] + [({"where": f"device {k}"}, d) for k, d in devices]
  for name in ("reserved", "peak", "total"):
    metric(f"memory_{name}_bytes", "gauge", f"Bytes of the budget, {name}.", [(labels, held[f"bytes_{name}"]) for labels, held in memory])
  return "\n".join(lines) + "\n"


def _labels(labels):
  return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
