"""A live page of an engine on this machine: /status as JSON, /metrics for Prometheus, / the grid of partitions."""
import contextlib
import http.server
import json
import sys
import threading

_PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>zkjax engine</title>
<style>body{font:14px sans-serif;margin:1em}td{padding:2px 6px}
i{display:inline-block;width:14px;height:14px;margin:1px;background:#ddd}pre{background:#f4f4f4;padding:1em}</style></head>
<body><h1>zkjax engine</h1><p id="line"></p><table id="grid"></table><pre id="all"></pre><script>
const colors={"waiting":"#ddd","synthesis":"#7aa6c2","queued":"#e3dcc8","dispatched":"#edc948","on device":"#59a14f","finishing":"#f28e2b",
"proved":"#4e79a7","given up":"#e15759"};
async function show(){
  const s=await (await fetch("/status")).json();
  document.getElementById("line").textContent=`${s.jobs.proofs} proofs, ${s.jobs.running} jobs running, ${s.seconds.toFixed(0)} s; `+
    Object.entries(s.partitions).map(([k,v])=>`${v} ${k}`).join(", ");
  const grid=document.getElementById("grid"); grid.replaceChildren();
  for(const job of s.grid){const row=grid.insertRow(); row.insertCell().textContent=`${job.number} ${job.job_id}`;
    row.insertCell().textContent=`${job.age_seconds.toFixed(1)} s`; const cell=row.insertCell();
    for(const state of job.partitions){const box=document.createElement("i"); box.style.background=colors[state]; box.title=state;
      cell.append(box);}}
  document.getElementById("all").textContent=JSON.stringify({devices:s.devices,host:s.host,queues:s.queues,timeline:s.timeline},null,1);
}
setInterval(show,500); show();</script></body></html>
"""


@contextlib.contextmanager
def serve(engine, port):
  """Serves the page on 127.0.0.1 during the block, and says where; None serves nothing."""
  if port is None:
    yield None
    return

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      pages = {"/": ("text/html", lambda: _PAGE), "/status": ("application/json", lambda: json.dumps(engine.status())),
               "/metrics": ("text/plain; version=0.0.4", engine.prometheus_text)}
      if self.path not in pages:
        return self.send_error(404)
      kind, make = pages[self.path]
      body = make().encode()
      self.send_response(200)
      self.send_header("Content-Type", f"{kind}; charset=utf-8")
      self.send_header("Content-Length", str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, *_):
      pass
  server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  url = f"http://127.0.0.1:{server.server_port}/"
  print(f"status on {url}, {url}status and {url}metrics", file=sys.stderr, flush=True)
  try:
    yield url
  finally:
    server.shutdown()
    server.server_close()
    thread.join()
