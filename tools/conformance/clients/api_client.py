"""comfy-api-client: pydantic-strict shapes, results by HTTP polling (its WebSocket mode is broken, see README)."""

import asyncio
import sys
import uuid
from pathlib import Path

from comfy_api_client import create_client
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, SAVE, Graph, main, must, node, same  # noqa: E402


def client_case(body):
    """A case with an open client, in its own event loop."""

    def case(server):
        async def run():
            async with create_client(server.url, start_state_tracker="http") as client:
                return await asyncio.wait_for(body(server, client), PATIENCE)

        return asyncio.run(run())

    case.__name__ = body.__name__
    return case


async def result(client, graph):
    prompt = await client.submit_workflow(graph.prompt)
    done = await prompt.future
    same(len(done.output_images), 1, "pictures")
    item = done.output_images[0]
    must(item.filename.endswith(".png") and item.format == "png", f"file {item.filename} of format {item.format}")
    graph.expect(item.image)
    return prompt.prompt_id


@client_case
async def submit(server, client):
    graph = Graph()
    await result(client, graph)
    await result(client, graph)


@client_case
async def concurrent(server, client):
    await asyncio.gather(*(result(client, Graph()) for _ in range(4)))


@client_case
async def queue(server, client):
    """Every row of /queue must unpack to exactly five values; a cancel that ComfyUI does not know is accepted and ignored."""
    graph = Graph(work=server.work(3))
    prompt = await client.submit_workflow(graph.prompt)
    waiting = Graph()
    next_one = await client.submit_workflow(waiting.prompt)
    state = await client.get_queue()
    rows = {row.prompt_id: row for row in (*state.running, *state.pending)}
    same(rows[prompt.prompt_id].prompt, graph.prompt, "graph in the queue")
    same(rows[prompt.prompt_id].extra_data["client_id"], client.client_id, "client_id in the queue")
    same(rows[prompt.prompt_id].outputs_to_execute, [SAVE], "outputs in the queue")
    await client.cancel_prompts([prompt.prompt_id])
    graph.expect((await prompt.future).output_images[0].image)
    waiting.expect((await next_one.future).output_images[0].image)


@client_case
async def upload(server, client):
    graph = Graph()
    name = f"{uuid.uuid4()}.png"
    sent = await client.upload_image(name, Image.new("RGB", (48, 48), f"#{graph.color:06x}"))
    same((sent.name, sent.type), (name, "input"), "upload")
    graph.prompt["1"] = node("LoadImage", image=sent.name)
    await result(client, graph)
    back = await client.retrieve_image(name, type="input")
    same(back.image.size, (48, 48), "size of the input read back")
    must(await client.retrieve_image("there-is-no-such-file.png") is None, "a missing file was found")


@client_case
async def interrupt(server, client):
    prompt = await client.submit_workflow(Graph(work=server.work(12)).prompt)
    while prompt.prompt_id not in {row.prompt_id for row in (await client.get_queue()).running}:
        await asyncio.sleep(0.05)
    await client.interrupt_processing()
    try:
        await prompt.future
    except Exception as error:
        must("execution_interrupted" in str(error), f"error: {error}")
    else:
        raise AssertionError("an interrupted prompt ended well")
    await result(client, Graph())


@client_case
async def routes(server, client):
    stats = await client.get_system_stats()
    must(len(stats.devices) >= 1, "no devices")
    must("<html" in (await client.get_index()).lower(), "no page at /")
    await client.get_embeddings()
    await client.get_extensions()
    must(isinstance(await client.get_history(max_items=5), dict), "history")


main({f.__name__: f for f in (submit, concurrent, queue, upload, interrupt, routes)})
