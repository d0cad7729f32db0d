"""comfy-cli: `comfy run --wait --json`, `comfy jobs ls|status|cancel`, upload and download."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, SAVE, Graph, main, must, node, same  # noqa: E402

HOME = tempfile.TemporaryDirectory(prefix="comfy-cli-")
COMFY = Path(sys.executable).with_name("comfy")
ENV = {
    **os.environ,
    "HOME": HOME.name,
    "XDG_CONFIG_HOME": f"{HOME.name}/.config",
    "DO_NOT_TRACK": "1",
    "COMFY_NO_WATCH": "1",
    "NO_COLOR": "1",
}


def comfy(server, *words, code=0, target=True):
    """Runs the program and returns the lines of JSON that it wrote."""
    where = ["--host", server.host, "--port", str(server.port)] if target else []
    # `run --json` writes a line for each event; for other commands the option belongs to the program and gives the envelope.
    form = [] if "--json" in words else ["--json"]
    ran = subprocess.run(
        [COMFY, "--skip-prompt", *form, *words, *where],
        env={**ENV, "COMFY_LOCAL_URL": server.url}, cwd=HOME.name, capture_output=True, text=True, timeout=PATIENCE,
    )
    must(ran.returncode == code, f"comfy {' '.join(words)}: exit {ran.returncode}, want {code}\n{ran.stdout[-1500:]}\n{ran.stderr[-1500:]}")
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def workflow(graph):
    path = Path(HOME.name, f"{uuid.uuid4()}.json")
    path.write_text(json.dumps(graph.prompt))
    return str(path)


def submit(server, graph):
    return comfy(server, "run", "--workflow", workflow(graph))[-1]["data"]["prompt_id"]


def status(server, prompt_id):
    return comfy(server, "jobs", "status", prompt_id)[-1]["data"]["status"]


def wait_for(server, prompt_id, *wanted):
    end = time.monotonic() + PATIENCE
    while (now := status(server, prompt_id)) not in wanted:
        must(time.monotonic() < end, f"{prompt_id} is {now}, not {wanted}")
        time.sleep(0.2)
    return now


def run_and_wait(server):
    """One workflow, then the same again: the program names pictures from `executed`, cached or not."""
    graph = Graph()
    path = workflow(graph)
    for turn in ("first", "cached"):
        lines = comfy(server, "run", "--workflow", path, "--wait", "--json", "--timeout", "30")
        data = lines[-1]["data"]
        same((lines[-1]["ok"], data["status"]), (True, "completed"), f"{turn} envelope")
        same(len(data["outputs"]), 1, f"{turn} outputs")
        graph.expect(server.get(data["outputs"][0].removeprefix(server.url)), turn)
        executed = [line for line in lines if line["type"] == "executed"]
        same([line["node"] for line in executed], [SAVE], f"{turn} executed")


def run_queued(server):
    """A wait in the queue that is longer than the program tolerates between two frames (a stock ComfyUI is silent)."""
    work = lasting(server, 2 * server.instances + 1, more=18)
    busy = [submit(server, Graph(work=work)) for _ in range(server.instances)]
    for prompt_id in busy:
        wait_for(server, prompt_id, "running")
    graph = Graph()
    lines = comfy(server, "run", "--workflow", workflow(graph), "--wait", "--json", "--timeout", "16")
    graph.expect(server.get(lines[-1]["data"]["outputs"][0].removeprefix(server.url)))


def run_refused(server):
    """Bad inputs: exit 1 and an error in the envelope."""
    graph = Graph()
    graph.prompt["8"]["inputs"]["upscale_method"] = "no-such-method"
    last = comfy(server, "run", "--workflow", workflow(graph), "--wait", code=1)[-1]
    must(last["ok"] is False and last["error"]["code"], f"envelope: {last}")


def lasting(server, calls, more=0):
    """Work that outlasts so many calls of the program, by some seconds more. Each is a process, which starts slowly on a busy machine."""
    begin = time.monotonic()
    comfy(server, "jobs", "ls")
    seconds = more + math.ceil(1.5 * calls * (time.monotonic() - begin))
    return server.work(min(max(9, seconds), PATIENCE - 10))


def jobs(server):
    """ls and status of what runs, waits and is done."""
    work = lasting(server, 2 * server.instances + 3)
    busy = [Graph(work=work) for _ in range(server.instances)]
    running = [submit(server, graph) for graph in busy]
    graph = Graph()
    pending = submit(server, graph)
    for prompt_id in running:
        same(wait_for(server, prompt_id, "running"), "running", "status")
    same(status(server, pending), "pending", "status of the last one")
    listed = {job["prompt_id"]: job["status"] for job in comfy(server, "jobs", "ls")[-1]["data"]["jobs"]}
    same([listed.get(prompt_id) for prompt_id in running], ["running"] * len(running), "running jobs listed")
    same(listed.get(pending), "pending", "pending job listed")
    for prompt_id in (*running, pending):
        wait_for(server, prompt_id, "completed")
    data = comfy(server, "jobs", "status", pending)[-1]["data"]
    graph.expect(server.get(data["outputs"][0].removeprefix(server.url)))


def cancel_pending(server):
    """A waiting job that is cancelled never runs, and the running jobs go on."""
    busy = [Graph(work=server.work(PATIENCE)) for _ in range(server.instances)]
    running = [submit(server, graph) for graph in busy]
    for prompt_id in running:
        wait_for(server, prompt_id, "running")
    pending = submit(server, Graph())
    comfy(server, "jobs", "cancel", pending)
    same(status(server, pending), "cancelled", "status")
    same(server.json(f"/history/{pending}"), {}, "history of the cancelled job")
    for prompt_id in running:
        same(status(server, prompt_id), "running", "status of what runs")
        server.post("/interrupt", {"prompt_id": prompt_id})
    for prompt_id in running:
        wait_for(server, prompt_id, "cancelled")


def cancel_running(server):
    """Cancelling one of two jobs: the program interrupts without an id, and still only that job may end."""
    victim = submit(server, Graph(work=lasting(server, 8)))
    other = Graph(work=server.work(3))
    bystander = submit(server, other)
    wait_for(server, victim, "running")
    if server.instances > 1:
        wait_for(server, bystander, "running", "completed")
    comfy(server, "jobs", "cancel", victim)
    wait_for(server, victim, "cancelled")
    entry = server.json(f"/history/{victim}")[victim]
    same((entry["status"]["status_str"], entry["status"]["completed"]), ("error", False), "history of the cancelled job")
    wait_for(server, bystander, "completed")
    image = server.json(f"/history/{bystander}")[bystander]["outputs"][SAVE]["images"][0]
    other.expect(server.view(**image))


def cancel_unknown(server):
    last = comfy(server, "jobs", "cancel", str(uuid.uuid4()), code=1)[-1]
    same(last["error"]["code"], "prompt_not_found", "error")


def transfer(server):
    """Upload a picture, use it, download the result."""
    graph = Graph()
    source = Path(HOME.name, f"{uuid.uuid4()}.png")
    Image.new("RGB", (48, 48), f"#{graph.color:06x}").save(source)
    comfy(server, "upload", str(source))
    graph.prompt["1"] = node("LoadImage", image=source.name)
    prompt_id = submit(server, graph)
    wait_for(server, prompt_id, "completed")
    out = Path(HOME.name, "out")
    comfy(server, "download", prompt_id, "--out-dir", str(out), target=False)
    files = [path for path in out.rglob("*") if path.is_file()]
    same(len(files), 1, "files downloaded")
    graph.expect(files[0].read_bytes())


main({
    f.__name__: f
    for f in (run_and_wait, run_queued, run_refused, jobs, cancel_pending, cancel_running, cancel_unknown, transfer)
})
