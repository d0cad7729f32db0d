"""ComfyScript: reads all of /object_info, names its nodes like `EmptyImage.0`, and ends on `executing` null."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import Graph, main, same  # noqa: E402

stubs = tempfile.mkdtemp(prefix="comfy-script-")  # it writes its node stubs where it is started
atexit.register(shutil.rmtree, stubs, ignore_errors=True)
os.chdir(stubs)


def workflow(server):
    from comfy_script import runtime

    runtime.load(server.url, vars={}, watch=True, save_script_source=False)
    from comfy_script.runtime import nodes

    def run(graph):
        with runtime.Workflow():
            image = None
            for step in list(graph.prompt.values())[:-1]:
                inputs = {key: image if isinstance(value, list) else value for key, value in step["inputs"].items()}
                image = getattr(nodes, step["class_type"])(**inputs)
            saved = nodes.SaveImage(image, "conformance")
        images = saved.wait()._output["images"]
        same(len(images), 1, "pictures")
        graph.expect(server.view(**images[0]))

    # This client misses a prompt that ends before it has read the answer to its POST, so each prompt gets some work.
    for _ in range(3):
        run(Graph(work=server.work(1)))


main({"workflow": workflow})
