"""Small Python libraries from PyPI, each used the way its own README says.

comfy_api_simplified and comfyui-utils post first and then open a socket for each prompt, comfyui-workflow-client and
comfyui-xy poll /history/{id} once a second, comfyapi polls it every three seconds.
"""

import asyncio
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, SAVE, Graph, main, must, node, same  # noqa: E402

FOLDER = tempfile.TemporaryDirectory(prefix="conformance-")


def titled(graph):
    """The prompt with titles, by which clients find its output node."""
    for key, step in graph.prompt.items():
        step["_meta"] = {"title": "Save Image" if key == SAVE else step["class_type"]}
    return graph.prompt


def file_of(graph):
    path = Path(FOLDER.name, f"{graph.color:06x}.json")
    path.write_text(json.dumps(titled(graph)))
    return str(path)


def simplified(server):
    """comfy_api_simplified: prompts one by one, then several at once, each with its own client id and socket.

    They have no work, because the library would return its previews instead of the pictures.
    """
    from comfy_api_simplified import ComfyApiWrapper, ComfyWorkflowWrapper

    api = ComfyApiWrapper(server.url)

    def job(graph):
        images = api.queue_and_wait_images(ComfyWorkflowWrapper(titled(graph)), "Save Image")
        same(len(images), 1, "pictures")
        graph.expect(next(iter(images.values())))

    for _ in range(3):
        job(Graph())
    with ThreadPoolExecutor() as threads:
        list(threads.map(job, [Graph() for _ in range(2 + server.instances)]))


def simplified_upload(server):
    """comfy_api_simplified: a picture in a subfolder of the inputs, named by folder and file."""
    from comfy_api_simplified import ComfyApiWrapper

    api = ComfyApiWrapper(server.url)
    graph = Graph()
    path = Path(FOLDER.name, f"{graph.color:06x}.png")
    Image.new("RGB", (48, 48), f"#{graph.color:06x}").save(path)
    sent = api.upload_image(path)
    graph.prompt["1"] = node("LoadImage", image=f"{sent['subfolder']}/{sent['name']}")
    images = api.queue_and_wait_images(titled(graph), "Save Image")
    graph.expect(next(iter(images.values())))
    must("SaveImage" in api.get_object_info("SaveImage"), "no SaveImage")
    must(isinstance(api.get_embeddings(), list), "embeddings")


def simplified_pictures(server):
    """comfy_api_simplified: pictures over the socket, which it keeps no matter whose they are."""
    from comfy_api_simplified import ComfyApiWrapper

    server.need("SaveImageWebsocket")
    api = ComfyApiWrapper(server.url)
    for _ in range(3):
        # It opens its socket after the POST: a prompt that has ended by then has sent its pictures to nobody.
        graph = Graph(work=server.work(3), output="SaveImageWebsocket")
        images = api.queue_and_wait_images(titled(graph), "Save Image")
        graph.expect(images[str(len(images) - 1)], f"the last of {len(images)}, previews before it")


def workflow_client(server):
    """comfyui-workflow-client, the synchronous one: /history/{id} with `outputs` means done."""
    from comfyuiclient import ComfyUIClient

    graph = Graph()
    client = ComfyUIClient(server.netloc, file_of(graph))
    client.connect()
    for _ in range(2):
        graph.expect(client.generate(["Save Image"])["Save Image"])
    client.set_data(key="ImageScale", input_key="width", input_value=96)
    graph.size = (96, graph.size[1])
    graph.expect(client.generate(["Save Image"])["Save Image"])
    client.close()


def workflow_client_async(server):
    """comfyui-workflow-client, the asynchronous one: one socket, `executing` null, then the history."""
    from comfyuiclient import ComfyUIClientAsync

    async def run():
        # It reads its socket only after the POST; until then frames wait there.
        graph = Graph()
        client = ComfyUIClientAsync(server.netloc, file_of(graph))
        await client.connect()
        for _ in range(2):
            graph.expect((await client.generate(["Save Image"]))["Save Image"])
        await client.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def xy(server):
    """comfyui-xy: no client id at all; polls /history/{id} until the entry is there; upload and interrupt."""
    from comfyui_xy import ComfyUiClient

    with ComfyUiClient(url=server.url, execution_timeout=PATIENCE, raise_on_error=True) as client:
        graph = Graph()
        responses = client.process_workflow(graph.prompt)
        files = [response for response in responses if response.is_file]
        same(len(files), 1, "files")
        graph.expect(files[0].image)
        loaded = Graph()
        path = Path(FOLDER.name, f"{loaded.color:06x}.png")
        Image.new("RGB", (48, 48), f"#{loaded.color:06x}").save(path)
        loaded.prompt["1"] = node("LoadImage", image=client.upload_image(str(path)))
        loaded.expect(client.process_workflow(loaded.prompt)[0].image)
        must(client.interrupt() is True, "interrupt with nothing to stop")
        must(isinstance(client.get_queue()["queue_running"], list), "queue")
        must(len(client.get_history_all()) >= 2, "history")


def manager(server):
    """comfyapi: a batch under one client id, then /queue and /history in turn."""
    from comfyapi import ComfyAPIManager

    client = ComfyAPIManager()
    client.set_base_url(server.url)
    graphs = [Graph(), Graph()]
    prompts = []
    for graph in graphs:
        client.load_workflow(file_of(graph))
        client.edit_workflow(["8", "inputs", "width"], 88)
        graph.size = (88, graph.size[1])
        prompts.append(client.submit_workflow())
    found, errors = client.wait_and_get_all_outputs(prompts)
    same(errors, [], "errors")
    same(len(found), 2, "outputs")
    for graph, prompt_id in zip(graphs, prompts, strict=True):
        url, name = client.find_output(prompt_id, with_filename=True)
        graph.expect(Path(client.download_output(url, save_path=FOLDER.name, filename=name)).read_bytes())


async def paint(server, graphs):
    """Runs graphs with comfyui-utils, one after the other."""
    from comfyui_utils import comfy

    class Callbacks(comfy.Callbacks):
        output = None

        async def queue_position(self, position):
            must(position >= 0, "position")

        async def in_progress(self, node_id, progress, total):
            pass

        async def completed(self, outputs, cached):
            self.output = outputs

    api = comfy.ComfyAPI(server.netloc)
    for graph in graphs:  # none has previews, which the library takes for an error
        got = Callbacks()
        await asyncio.wait_for(api.submit(graph.prompt, got), PATIENCE)
        pictures = []

        async def keep(file):
            pictures.append(file.read())

        await api.fetch(got.output["images"][0], keep)
        graph.expect(pictures[0])


def utils(server):
    """comfyui-utils: reads /queue and /history at every status; the second prompt is cached."""
    graph = Graph()
    asyncio.run(paint(server, (graph, graph, Graph())))


def utils_busy(server):
    """comfyui-utils asserts that at most one prompt runs, no matter whose, while others' prompts run on all instances."""
    others = [Graph(work=server.work(2)) for _ in range(2 * server.instances)]
    ids = [json.loads(server.post("/prompt", {"prompt": other.prompt, "client_id": f"busy-{i}"}))["prompt_id"] for i, other in enumerate(others)]
    asyncio.run(paint(server, [Graph()]))
    for other, prompt_id in zip(others, ids, strict=True):
        image = server.ended(prompt_id)["outputs"][SAVE]["images"][0]  # some may still run: short jobs go first
        other.expect(server.view(**image))


main({
    f.__name__: f
    for f in (simplified, simplified_upload, simplified_pictures, workflow_client, workflow_client_async, xy, manager, utils, utils_busy)
})
