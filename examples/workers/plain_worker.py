"""A worker without ComfyUI: it does one kind of work, the node class Uppercase.

    HUB=https://hub.example.com TOKEN=attic:... python3 plain_worker.py
"""
import json, os, sys, time, urllib.request

HUB, TOKEN = os.environ["HUB"], os.environ["TOKEN"]


def hub(path, data=None):
    data = json.dumps(data).encode() if data is not None else None
    request = urllib.request.Request(HUB + path, data, {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=90).read())


while True:
    try:
        job = hub("/next-job?worker_id=plain&classes=Uppercase&wait=30")
        if job["status"] == "assigned":
            node, work = next(iter(job["workflow"].items()))
            hub("/complete-job/" + job["id"], {"result": {"outputs": {node: {"text": [work["inputs"]["text"].upper()]}}}})
    except OSError as error:
        print(error, file=sys.stderr)
        time.sleep(2)
