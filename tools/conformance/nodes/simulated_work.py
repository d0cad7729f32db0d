"""Work that takes a given time and no processor: put this file into ComfyUI's custom_nodes to test real servers quickly.

The same class as the simulator's; the suite uses it if the server has it, otherwise wide blurs.
"""

import time

import comfy.model_management
import comfy.utils


class SimulatedWork:
    CATEGORY = "comfyhub"
    DESCRIPTION = "Passes an image through after a given time."
    FUNCTION = "run"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "image": ("IMAGE",),
                "seconds": ("FLOAT", {"default": 1.0, "min": 0.0, "max": 3600.0, "step": 0.1}),
                "steps": ("INT", {"default": 10, "min": 1, "max": 10000}),
            },
            "optional": {
                "fail": (["none", "error"], {"default": "none"}),
                "nonce": ("INT", {"default": 0, "min": 0, "max": 1 << 53}),
            },
        }

    def run(self, image, seconds, steps, fail="none", nonce=0):
        progress = comfy.utils.ProgressBar(steps)
        for step in range(steps):
            end = time.monotonic() + seconds / steps
            while (left := end - time.monotonic()) > 0:
                comfy.model_management.throw_exception_if_processing_interrupted()
                time.sleep(min(left, 0.05))
            if fail == "error" and step == steps // 2:
                raise RuntimeError("simulated failure")
            progress.update(1)
        return (image,)


NODE_CLASS_MAPPINGS = {"SimulatedWork": SimulatedWork}
NODE_DISPLAY_NAME_MAPPINGS = {"SimulatedWork": "Simulated Work"}
