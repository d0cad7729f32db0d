"""A worker that runs the hub's jobs on a ComfyUI beside it.

    HUB=https://hub.example.com TOKEN=attic:... python3 comfyui_worker.py http://127.0.0.1:8188
"""
import json, os, sys, time, urllib.parse, urllib.request

HUB, TOKEN, COMFYUI = os.environ["HUB"], os.environ["TOKEN"], sys.argv[1]


def call(url, data=None, kind="application/json", **headers):
    data = json.dumps(data).encode() if isinstance(data, dict) else data
    request = urllib.request.Request(url, data, {"Content-Type": kind, **headers})
    return urllib.request.urlopen(request, timeout=90).read()


def hub(path, data=None, kind="application/json"):
    return call(HUB + path if path[0] == "/" else path, data, kind, Authorization="Bearer " + TOKEN)


def run(job):
    for file in job["inputs"]:  # the hub's files, for this ComfyUI
        form = b'--x\r\nContent-Disposition: form-data; name="overwrite"\r\n\r\ntrue\r\n--x\r\nContent-Disposition: form-data; name="image"; filename="%s"\r\n\r\n%s\r\n--x--\r\n'
        call(COMFYUI + "/upload/image", form % (file["name"].encode(), hub(file["url"])), "multipart/form-data; boundary=x")
    prompt = json.loads(call(COMFYUI + "/prompt", {"prompt": job["workflow"], "extra_data": job["extra_data"]}))["prompt_id"]
    while not (history := json.loads(call(COMFYUI + "/history/" + prompt))):
        hub("/renew-job/" + job["id"], {})  # an error here says that the job is not wanted any more
        time.sleep(1)
    if history[prompt]["status"]["status_str"] != "success":
        return {"error": json.dumps(history[prompt]["status"]["messages"][-1])}
    for node, output in history[prompt]["outputs"].items():
        for file in (f for files in output.values() for f in files if isinstance(f, dict) and "filename" in f):
            content = call(COMFYUI + "/view?" + urllib.parse.urlencode(file))
            hub("/upload-output/%s?%s" % (job["id"], urllib.parse.urlencode({"node": node, "filename": file["filename"]})), content, "application/octet-stream")
    return {"result": {}}


while True:
    try:
        hub("/hub/v1/workers/comfyui", {"object_info": json.loads(call(COMFYUI + "/object_info"))})
        while (job := json.loads(hub("/next-job?worker_id=comfyui&wait=30")))["status"] == "assigned":
            hub("/complete-job/" + job["id"], run(job))
    except OSError as error:  # the hub or ComfyUI is away, or the job was cancelled
        print(error, file=sys.stderr)
        time.sleep(2)
