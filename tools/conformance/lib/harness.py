"""How a Python case reports, what graphs it runs, and what the pictures must look like.

The same as case.mjs, graph.mjs and picture.mjs, for clients that are Python packages.
"""

import argparse
import io
import json
import os
import random
import sys
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

from PIL import Image

SAVE = "9"
TOLERANCE = 2  # ComfyUI computes in floats and truncates
PATIENCE = 90


class Skip(Exception):
    """The server lacks what a case needs, which is not the server's fault."""


def must(condition, message):
    if not condition:
        raise AssertionError(message)


def same(got, want, what):
    must(got == want, f"{what}: got {got!r}, want {want!r}")


def main(cases):
    """Runs the case named on the command line and ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--case", required=True, choices=sorted(cases))
    parser.add_argument("--instances", type=int, default=1)
    arguments = parser.parse_args()
    server = Server(arguments.url.rstrip("/"), arguments.instances)
    try:
        detail = cases[arguments.case](server)
        result = {"status": "pass", "detail": detail or ""}
    except Skip as reason:
        result = {"status": "skip", "detail": str(reason)}
    except BaseException:  # a client may end the process by itself; that is a failure too
        result = {"status": "fail", "detail": traceback.format_exc(limit=-6)}
    report = os.environ.get("CONFORMANCE_RESULT")  # a file: a client's threads print into any line of stdout
    if report:
        with open(report, "w", encoding="utf-8") as file:
            json.dump(result, file)
    else:
        print(f"\nRESULT {json.dumps(result)}", flush=True)
    sys.exit(1 if result["status"] == "fail" else 0)


class Server:
    """The server, reached with urllib, which sends a form content type unless told otherwise."""

    def __init__(self, url, instances=1):
        self.url = url
        self.instances = instances
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.netloc = parts.hostname, parts.port or 80, parts.netloc
        self._classes = None

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read()

    def json(self, path):
        return json.loads(self.get(path))

    def ended(self, prompt_id):
        """The entry of a prompt in the history, as soon as it is there."""
        end = time.monotonic() + PATIENCE
        while not (entry := self.json(f"/history/{prompt_id}").get(prompt_id)):
            must(time.monotonic() < end, f"no history of {prompt_id}")
            time.sleep(0.05)
        return entry

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"POST {path}: {error.code} {error.read()[:300]}") from None

    def view(self, filename, subfolder="", type="output", **_):
        """The file that an entry of an output names. 0.38 has the ids of its asset there, too."""
        query = urllib.parse.urlencode({"filename": filename, "subfolder": subfolder, "type": type})
        return self.get(f"/view?{query}")

    def classes(self):
        if self._classes is None:
            self._classes = set(self.json("/object_info"))
        return self._classes

    def need(self, name):
        if name not in self.classes():
            raise Skip(f"the server has no {name}")

    def work(self, seconds):
        """Nodes that take about `seconds`: the simulator's own, otherwise wide blurs of a flat picture."""
        if "SimulatedWork" in self.classes():
            inputs = {"seconds": seconds, "steps": max(1, round(seconds * 4)), "fail": "none", "nonce": random.getrandbits(31)}
            return [{"class_type": "SimulatedWork", "inputs": inputs}]
        self.need("ImageBlur")
        blur = {"class_type": "ImageBlur", "inputs": {"blur_radius": 31, "sigma": 10.0}}
        return [blur] * max(1, round(seconds / 0.7))


class Graph:
    """EmptyImage -> work -> ImageScale -> output, in a colour and size that defeat every cache."""

    def __init__(self, work=(), output="SaveImage", prefix="conformance"):
        self.color = random.randrange(0xFFFFFF)
        self.size = (64 + 8 * random.randrange(16), 64 + 8 * random.randrange(16))
        side = 512 if any(node["class_type"] == "ImageBlur" for node in work) else 32
        self.prompt = {"1": node("EmptyImage", width=side, height=side, batch_size=1, color=self.color)}
        last = "1"
        for i, step in enumerate(work):
            self.prompt[str(100 + i)] = node(step["class_type"], image=[last, 0], **step["inputs"])
            last = str(100 + i)
        width, height = self.size
        self.prompt["8"] = node(
            "ImageScale", image=[last, 0], upscale_method="nearest-exact", width=width, height=height, crop="disabled"
        )
        extra = {"filename_prefix": prefix} if output == "SaveImage" else {}
        self.prompt[SAVE] = node(output, images=["8", 0], **extra)

    def expect(self, picture, what="picture"):
        """Fails unless the bytes (or a PIL image) are a picture of this size, all of this colour."""
        image = picture if isinstance(picture, Image.Image) else Image.open(io.BytesIO(picture))
        image = image.convert("RGB")
        same(image.size, self.size, f"size of {what}")
        want = (self.color >> 16 & 255, self.color >> 8 & 255, self.color & 255)
        for (low, high), channel in zip(image.getextrema(), want, strict=True):
            must(
                abs(low - channel) <= TOLERANCE and abs(high - channel) <= TOLERANCE,
                f"{what}: colours {image.getextrema()}, want {want}",
            )


def node(class_type, **inputs):
    return {"class_type": class_type, "inputs": inputs}
