"""Submits a workflow, asks for its status every two seconds, and prints the URLs of its files.

    HUB=http://localhost:8188 python3 submit.py workflow_api.json
"""
import json, os, sys, time, urllib.request

HUB = os.environ.get("HUB", "http://localhost:8188")


def hub(path, data=None):
    request = urllib.request.Request(HUB + path, data and json.dumps(data).encode(), {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


with open(sys.argv[1]) as file:
    job = hub("/submit", {"workflow": json.load(file)})
while (job := hub("/status/" + job["id"]))["status"] in ("queued", "processing"):
    print(job["status"], "%.0f %%" % (100 * job["progress"]), file=sys.stderr)
    time.sleep(2)
if job["status"] != "completed":
    sys.exit(job["error"] or job["status"])
for file in job["result"]["files"]:
    print(file["url"])
