"""webuiapi: the Python client of A1111's API, used as its README does."""

import random
import sys
import threading
import time
import uuid
from pathlib import Path

import webuiapi

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))
from harness import PATIENCE, main, must, same  # noqa: E402


class Wish:
    """A picture that nobody else asks for: its prompt, seed and size."""

    def __init__(self):
        self.prompt = f"a fox {uuid.uuid4()}"
        self.seed = random.getrandbits(24)
        self.size = (16 + 2 * random.randrange(32), 16 + 2 * random.randrange(32))

    def asked(self, **more):
        width, height = self.size
        return {"prompt": self.prompt, "seed": self.seed, "width": width, "height": height, "steps": 5, **more}

    def color(self, number=0):
        """The colour in which the simulated server paints a picture."""
        seed = self.seed + number
        return (seed & 255, seed >> 8 & 255, seed * 37 & 255)

    def expect(self, image, number=0, right=None):
        """Fails unless the picture is this one: its parameters, its size, and the colours of its halves."""
        image.load()
        parameters = image.info.get("parameters", "")
        must(parameters.startswith(f"{self.prompt}\n"), f"parameters of another picture: {parameters!r}, want {self.prompt!r}")
        must(f"Seed: {self.seed + number}," in parameters, f"seed {self.seed + number} is not in {parameters!r}")
        same(image.size, self.size, "size")
        width, height = self.size
        flat(image, (0, 0, width // 2, height), self.color(number), "left half")
        flat(image, (width // 2, 0, width, height), right or self.color(number), "right half")


def flat(image, box, color, what):
    same(image.convert("RGB").crop(box).getextrema(), tuple((channel, channel) for channel in color), what)


def client_of(server):
    return webuiapi.WebUIApi(host=server.host, port=server.port)


def one_of(result):
    same(len(result.images), 1, "pictures")
    return result.image


def pictures(server):
    """txt2img, then img2img from its picture, then a batch."""
    api = client_of(server)
    first, second, batch = Wish(), Wish(), Wish()
    result = api.txt2img(**first.asked())
    first.expect(one_of(result))
    same(result.parameters["prompt"], first.prompt, "parameters")
    same(result.info["all_seeds"], [first.seed], "info")
    second.expect(one_of(api.img2img(images=[result.image], **second.asked())), right=first.color())
    many = api.txt2img(**batch.asked(n_iter=2, batch_size=2)).images
    same(len(many), 4, "pictures of the batch")
    for number, image in enumerate(many):
        batch.expect(image, number)


def turns(server):
    """What one of many clients does: it is ready, waits for the others, and makes pictures."""
    api = client_of(server)
    print("ready", flush=True)
    sys.stdin.read()
    for _ in range(2):
        first, second = Wish(), Wish()
        picture = one_of(api.txt2img(**first.asked()))
        first.expect(picture)
        second.expect(one_of(api.img2img(images=[picture], **second.asked())), right=first.color())


def extras(server):
    """What needs no model: enlarging, the parameters in a file, a caption."""
    api = client_of(server)
    wish = Wish()
    width, height = wish.size
    picture = one_of(api.txt2img(**wish.asked()))
    large = one_of(api.extra_single_image(picture, upscaling_resize=2))
    same(large.size, (2 * width, 2 * height), "size")
    flat(large, (0, 0, *large.size), wish.color(), "enlarged picture")
    same([image.size for image in api.extra_batch_images([picture, picture]).images], 2 * [large.size], "sizes")
    must(api.png_info(picture).info.startswith(wish.prompt), "png_info")
    must(api.interrogate(picture).info, "no caption")


def routes(server):
    """The lists, options and states that the client reads."""
    api = client_of(server)
    models = api.util_get_model_names()
    must(len(models) > 1, "fewer than two models")
    for lists in (api.get_samplers, api.get_schedulers, api.get_upscalers, api.get_latent_upscale_modes):
        must(all(item["name"] for item in lists()), lists.__name__)
    for lists in (
        api.get_loras, api.get_sd_vae, api.get_hypernetworks, api.get_face_restorers, api.get_realesrgan_models, api.get_prompt_styles,
    ):
        must(isinstance(lists(), list), lists.__name__)
    same(sorted(api.get_scripts()), ["img2img", "txt2img"], "scripts")
    same(sorted(api.get_embeddings()), ["loaded", "skipped"], "embeddings")
    same(sorted(api.get_memory()), ["cuda", "ram"], "memory")
    must("api" in api.get_cmd_flags(), "cmd-flags")
    api.refresh_checkpoints()
    api.util_wait_for_ready(check_interval=0.1)
    before = api.util_get_current_model()
    for model in models[:2]:
        api.util_set_model(model, find_closest=False)
        same(api.util_get_current_model(), model, "model")
        wish = Wish()
        result = api.txt2img(**wish.asked())
        wish.expect(one_of(result))
        must(result.info["sd_model_name"] in model, f"made with {result.info['sd_model_name']}, not {model}")
    api.util_set_model(before, find_closest=False)


def interrupted(server):
    """A long request is seen at work, and ends with a picture when it is interrupted."""
    api, other = client_of(server), client_of(server)
    wish, made = Wish(), []
    work = threading.Thread(target=lambda: made.append(api.txt2img(**wish.asked(steps=100_000))), daemon=True)
    work.start()

    def at_work():
        state = other.get_progress()["state"]
        return state["job_count"] > 0 and state["sampling_step"] > 0  # the step of the last request stays

    end = time.monotonic() + PATIENCE
    while not at_work():
        must(time.monotonic() < end, "no progress")
        time.sleep(0.05)
    must(0 < other.get_progress()["progress"] < 1, "progress")
    other.interrupt()
    work.join(PATIENCE)
    must(made, "no answer after the interruption")
    wish.expect(one_of(made[0]))


def refused(server):
    """Errors have their status and A1111's names."""
    api = client_of(server)
    for asked, status, word in (({"sampler_name": "none such"}, 404, "Sampler not found"), ({"steps": "many"}, 422, "steps")):
        try:
            api.txt2img(**{**Wish().asked(), **asked})
        except RuntimeError as error:
            same(error.args[0], status, "status")
            must(word in error.args[1], f"{word!r} is not in {error.args[1]!r}")
        else:
            must(False, f"{asked} was not refused")


main({f.__name__: f for f in (pictures, turns, extras, routes, interrupted, refused)})
