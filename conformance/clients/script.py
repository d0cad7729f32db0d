"""ComfyScript: reads all of /object_info, names its nodes like `EmptyImage.0`, and ends on `executing` null."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import Graph, main, same  # noqa: E402

os.chdir(tempfile.mkdtemp(prefix="comfy-script-"))  # it writes its node stubs where it is started


def workflow(server):
    from comfy_script import runtime

    runtime.load(server.url, vars={}, watch=True, save_script_source=False)
    from comfy_script.runtime import nodes

    def run(graph):
        with runtime.Workflow():
            start = graph.prompt["1"]["inputs"]
            image = nodes.EmptyImage(start["width"], start["height"], 1, start["color"])
            image = nodes.ImageScale(image, "nearest-exact", *graph.size, "disabled")
            saved = nodes.SaveImage(image, "conformance")
        images = saved.wait()._output["images"]
        same(len(images), 1, "pictures")
        graph.expect(server.view(**images[0]))

    graph = Graph()
    run(graph)
    run(graph)
    run(Graph())


main({"workflow": workflow})
