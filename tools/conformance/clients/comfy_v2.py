"""comfy-sdk: Comfy's own client of the Comfy API v2, synchronous and asynchronous."""

import asyncio
import io
import os
import sys
import time
import uuid
from pathlib import Path

from comfy_sdk import AsyncComfy, Comfy
from comfy_sdk.events import OutputReady, StatusChange
from comfy_sdk.exceptions import ComfyError
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, SAVE, Graph, main, must, node, same  # noqa: E402


def client_case(body):
    """A case with an open client."""

    def case(server):
        os.environ["COMFY_BASE_URL"] = server.url
        with Comfy(api_key=None) as client:
            return body(server, client)

    case.__name__ = body.__name__
    return case


def refused(code, call, *arguments, **options):
    """Fails unless the call is refused with this code."""
    try:
        call(*arguments, **options)
    except ComfyError as error:
        same(error.code, code, "code")
        return
    raise AssertionError(f"not refused with {code}")


def ends(job):
    """The one output of a job that succeeds."""
    job.wait(timeout=PATIENCE)
    same((job.status, job.error), ("succeeded", None), "job")
    same(len(job.outputs), 1, "outputs")
    same((job.outputs[0].node_id, job.outputs[0].type, job.outputs[0].job_id), (SAVE, "image", job.id), "output")
    return job.outputs[0]


@client_case
def job(server, client):
    """One job: its state, its labels, its graph, its picture, whole and in part."""
    graph = Graph()
    label = uuid.uuid4().hex
    submitted = client.submit(client.workflows.from_json(graph.prompt), metadata={"run": label})
    output = ends(submitted)
    picture = output.to_bytes()
    graph.expect(picture)
    same(output.size_bytes, len(picture), "size")
    same(output.to_bytes(range=(1, 3)), b"PNG", "part")
    again = client.jobs.get(submitted.id)
    same(again.metadata, {"run": label}, "labels")
    same((again.get_workflow().format, again.get_workflow().graph), ("api", graph.prompt), "workflow")
    same([found.id for found in client.list_jobs(metadata={"run": label})], [submitted.id], "jobs with the label")


@client_case
def listed(server, client):
    """A list of several pages has each job once, the newest first."""
    label = uuid.uuid4().hex
    jobs = [client.submit(client.workflows.from_json(Graph().prompt), metadata={"run": label}) for _ in range(5)]
    same({found.id for found in client.list_jobs(metadata={"run": label}, limit=2)}, {job.id for job in jobs}, "jobs")
    for job in jobs:
        ends(job)
    found = list(client.list_jobs(metadata={"run": label}, limit=2))
    same(sorted(one.id for one in found), sorted(job.id for job in jobs), "jobs that have ended")
    times = [one.create_time for one in found]
    same(times, sorted(times, reverse=True), "order")


@client_case
def events(server, client):
    """The stream ends with the one end of the job, after its output."""
    graph = Graph(work=server.work(2))
    job = client.submit(client.workflows.from_json(graph.prompt))
    seen = list(job.events())
    same(seen[-1], StatusChange(status="succeeded"), "last event")
    outputs = [event.output for event in seen if isinstance(event, OutputReady)]
    same(len(outputs), 1, "outputs")
    graph.expect(outputs[0].to_bytes())
    must(any(isinstance(event, StatusChange) and event.status == "running" for event in seen), f"it never ran: {seen}")


@client_case
def assets(server, client):
    """The same bytes are one asset; it and an output are inputs of further jobs."""
    graph = Graph()
    buffer = io.BytesIO()
    Image.new("RGB", graph.size, f"#{graph.color:06x}").save(buffer, "PNG")
    asset = client.assets.from_bytes(buffer.getvalue(), filename="first.png")
    same(asset.commit() and asset.created_new, True, "new")
    same(client.assets.from_bytes(buffer.getvalue(), filename="second.png").commit(), asset.id, "the same bytes")
    same(client.assets.get(asset.id).hash, asset.hash, "hash")
    save = node("SaveImage", images=["1", 0], filename_prefix="conformance")
    output = ends(client.submit(client.workflows.from_json({"1": node("LoadImage", image=asset), SAVE: save})))
    graph.expect(output.to_bytes())
    reference = {"__type": "core/ASSET", "info": {"id": output.id}}
    graph.expect(ends(client.submit(client.workflows.from_json({"1": node("LoadImage", image=reference), SAVE: save}))).to_bytes())
    asset.delete()
    reference = {"__type": "core/ASSET", "info": {"id": str(uuid.uuid4())}}
    refused("missing_asset", client.submit, client.workflows.from_json({"1": node("LoadImage", image=reference), SAVE: save}))


@client_case
def keys(server, client):
    """A key makes one job, unless the job was refused."""
    key = uuid.uuid4().hex
    refused("invalid_workflow", client.submit, client.workflows.from_json({"1": node("NoSuchClass")}), idempotency_key=key)
    job = client.submit(client.workflows.from_json(Graph().prompt), idempotency_key=key)
    refused("idempotency_key_reuse", client.submit, client.workflows.from_json(Graph().prompt), idempotency_key=key)
    ends(job)
    refused("idempotency_key_reuse", client.submit, client.workflows.from_json(Graph().prompt), idempotency_key=key)


@client_case
def cancel(server, client):
    """Running and waiting jobs end as cancelled."""
    jobs = [client.submit(client.workflows.from_json(Graph(work=server.work(30)).prompt)) for _ in range(server.instances + 1)]
    end = time.monotonic() + PATIENCE
    while sum(job.refresh().status == "running" for job in jobs) < 1:
        must(time.monotonic() < end, "nothing runs")
        time.sleep(0.1)
    for job in reversed(jobs):
        must(job.cancel().status in ("canceling", "canceled"), job.status)
    for job in jobs:
        same(job.wait(timeout=PATIENCE).status, "canceled", "status")
    refused("not_found", client.jobs.get, str(uuid.uuid4()))


def asynchronous(server):
    """Several at once with the asynchronous client."""
    os.environ["COMFY_BASE_URL"] = server.url

    async def one(client):
        graph = Graph()
        job = await client.submit(client.workflows.from_json(graph.prompt))
        async for _ in job.events():
            pass
        await job.result()
        graph.expect(await job.outputs[0].to_bytes())

    async def run():
        async with AsyncComfy(api_key=None) as client:
            await asyncio.wait_for(asyncio.gather(*(one(client) for _ in range(4))), PATIENCE)

    return asyncio.run(run())


main({case.__name__: case for case in (job, listed, events, assets, keys, cancel, asynchronous)})
