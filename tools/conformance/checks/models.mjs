// A server offers what it has now: new files are listed and accepted at once.
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Skip, brief, main, must, same } from '../lib/case.mjs';
import { Server } from '../lib/comfy.mjs';
import { load, paint } from '../lib/graph.mjs';
import { flatPng, randomColor } from '../lib/picture.mjs';

/** The choices that an input of a class offers, in either of the two styles. */
const offered = (info, name, input) => {
  const [kind, options] = info[name].input.required[input];
  return Array.isArray(kind) ? kind : options.options;
};

/** LoadImage offers a picture as soon as its upload is answered, and the picture can be used. */
async function upload({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  for (let i = 0; i < 3; i++) {
    const color = randomColor();
    const { name } = await server.upload(`${randomUUID()}.png`, flatPng({ width: 40, height: 40, color }));
    const one = offered(await server.json('/object_info/LoadImage'), 'LoadImage', 'image');
    must(one.includes(name), `/object_info/LoadImage does not offer ${name}: ${brief(one)}`);
    const all = offered(await server.json('/object_info'), 'LoadImage', 'image');
    same(all, one, 'LoadImage of /object_info and of /object_info/LoadImage');
    await client.run({ ...load(name), color });
  }
}

/** A prompt that needs a LoRA. It is never run, since its files are empty. */
const withLora = (name, checkpoint) => ({
  1: { class_type: 'CheckpointLoaderSimple', inputs: { ckpt_name: checkpoint } },
  2: { class_type: 'LoraLoaderModelOnly', inputs: { model: ['1', 0], lora_name: name, strength_model: 1 } },
  3: { class_type: 'PreviewAny', inputs: { source: ['2', 0] } },
});

/**
 * A prompt that names a missing file is refused. Once the file is copied to a model folder, the next prompt that names it is
 * accepted, even while the server works, and every listing has it. CONFORMANCE_MODELS names the model folder of one of the servers.
 */
async function copied({ url, instances }) {
  const models = process.env.CONFORMANCE_MODELS;
  if (!models) throw new Skip('CONFORMANCE_MODELS names no folder in which a model can appear');
  const server = new Server(url);
  const busy = await server.connect();
  const work = await server.work(20);
  const running = await Promise.all(Array.from({ length: instances }, () => busy.submit(paint({ work }))));
  const name = `conformance-${randomUUID()}.safetensors`;
  const files = ['checkpoints', 'loras'].map((folder) => path.join(models, folder, name));
  const post = async () => {
    const body = JSON.stringify({ prompt: withLora(name, name), client_id: randomUUID() });
    const answer = await server.fetch('/prompt', { method: 'POST', body });
    return { status: answer.status, body: await answer.json() };
  };
  try {
    const before = await post();
    same(before.status, 400, 'status while there is no such file');
    must(JSON.stringify(before.body.node_errors).includes('value_not_in_list'), `refusal: ${brief(before.body)}`);
    for (const file of files) {
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, '');
    }
    const after = await post();
    same(after.status, 200, `status once the file is there, ${brief(after.body)}`);
    await server.post('/queue', { delete: [after.body.prompt_id] });
    const lists = {
      '/models/loras': await server.json('/models/loras'),
      '/object_info/LoraLoaderModelOnly': offered(await server.json('/object_info/LoraLoaderModelOnly'), 'LoraLoaderModelOnly', 'lora_name'),
      '/object_info/LoraLoader': offered(await server.json('/object_info/LoraLoader'), 'LoraLoader', 'lora_name'),
    };
    for (const [route, list] of Object.entries(lists)) must(list.includes(name), `${route} does not have the file: ${brief(list)}`);
  } finally {
    for (const file of files) rmSync(file, { force: true });
    for (const id of running) await server.post('/interrupt', { prompt_id: id });
    await server.post('/queue', { delete: running });
  }
}

await main({ upload, copied });
