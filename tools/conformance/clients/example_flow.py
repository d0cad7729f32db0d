"""The flow of ComfyUI's public API examples, in plain Python: what most scripts on the web do.

Open a socket with a client id, POST /prompt (urllib, so a form content type), wait for `executing` with
node null, read /history/{id} once, fetch each picture by /view.
"""

import json
import sys
import threading
import urllib.parse
import uuid
from pathlib import Path

import websocket

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, SAVE, Graph, main, must, same  # noqa: E402


def connect(server, client_id):
    ws = websocket.WebSocket()
    ws.connect(f"ws://{server.netloc}/ws?clientId={client_id}", timeout=PATIENCE)
    return ws


def queue_prompt(server, prompt, client_id):
    return json.loads(server.post("/prompt", {"prompt": prompt, "client_id": client_id}))["prompt_id"]


def pictures(server, ws, prompt, client_id):
    """All pictures of a prompt, by node, each fetched after the end."""
    prompt_id = queue_prompt(server, prompt, client_id)
    while True:
        message = ws.recv()
        if not isinstance(message, str):
            continue
        message = json.loads(message)
        if message["type"] == "executing":
            data = message["data"]
            if data["node"] is None and data.get("prompt_id") == prompt_id:
                break
    history = server.json(f"/history/{prompt_id}")[prompt_id]
    return {
        node_id: [server.view(image["filename"], image["subfolder"], image["type"]) for image in output["images"]]
        for node_id, output in history["outputs"].items()
        if "images" in output
    }


def run(server, graph, ws, client_id):
    got = pictures(server, ws, graph.prompt, client_id)
    same([*got], [SAVE], "nodes with pictures")
    same(len(got[SAVE]), 1, "pictures")
    graph.expect(got[SAVE][0])


def flow(server):
    """The same graph twice, so once cached, then another."""
    client_id = str(uuid.uuid4())
    ws = connect(server, client_id)
    graph = Graph()
    run(server, graph, ws, client_id)
    run(server, graph, ws, client_id)
    run(server, Graph(), ws, client_id)
    ws.close()


def parallel(server):
    """Several of these scripts at once, each with its own id."""
    failures = []

    def script():
        try:
            client_id = str(uuid.uuid4())
            ws = connect(server, client_id)
            for _ in range(3):
                run(server, Graph(), ws, client_id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=script, daemon=True) for _ in range(2 + server.instances)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        must(not thread.is_alive(), "a script hangs")
    if failures:
        raise failures[0]
    return f"{len(threads)} scripts, 3 prompts each"


def ws_images(server):
    """The variant that saves nothing: pictures come as binary frames while SaveImageWebsocket executes."""
    server.need("SaveImageWebsocket")
    client_id = str(uuid.uuid4())
    ws = connect(server, client_id)
    for _ in range(2):
        graph = Graph(output="SaveImageWebsocket")
        prompt_id = queue_prompt(server, graph.prompt, client_id)
        got, current = [], None
        while True:
            message = ws.recv()
            if not isinstance(message, str):
                if current == SAVE:
                    got.append(message[8:])
                continue
            message = json.loads(message)
            if message["type"] == "executing" and message["data"].get("prompt_id") == prompt_id:
                current = message["data"]["node"]
                if current is None:
                    break
        same(len(got), 1, "pictures")
        graph.expect(got[0])


def socket_per_prompt(server):
    """One client id and a new socket for each prompt, read to the end and closed, as in a loop around the example.

    The script keeps every picture and every message, no matter whose they are.
    """
    server.need("SaveImageWebsocket")
    client_id = str(uuid.uuid4())
    for turn in range(8):
        graph = Graph(output="SaveImageWebsocket")
        ws = connect(server, client_id)
        prompt_id = queue_prompt(server, graph.prompt, client_id)
        got, told = [], []
        while True:
            message = ws.recv()
            if not isinstance(message, str):
                got.append(message[8:])
                continue
            message = json.loads(message)
            told.append(message["data"].get("prompt_id", prompt_id))
            if message["type"] == "executing" and message["data"]["node"] is None:
                break
        ws.close()
        same(set(told), {prompt_id}, f"prompts told of on the socket of prompt {turn + 1}")
        same(len(got), 1, f"pictures on the socket of prompt {turn + 1}")
        graph.expect(got[0])


def polling(server):
    """No socket: /history/{id} is {} until the prompt is done."""
    graph = Graph(work=server.work(1))
    prompt_id = queue_prompt(server, graph.prompt, str(uuid.uuid4()))
    image = server.ended(prompt_id)["outputs"][SAVE]["images"][0]
    graph.expect(server.view(**image))


def object_info(server):
    """/object_info of a class whose name needs quoting, and of one that exists."""
    same(server.json("/object_info/" + urllib.parse.quote("Not a class (really)")), {}, "object_info of nothing")
    must("SaveImage" in server.json("/object_info/SaveImage"), "no SaveImage")


main({f.__name__: f for f in (flow, parallel, ws_images, socket_per_prompt, polling, object_info)})
