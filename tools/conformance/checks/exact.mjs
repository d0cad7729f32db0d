// What a client sends comes back unchanged: numbers, names, bytes of a picture.
import { main, must, same, Skip } from '../lib/case.mjs';
import { Server, Session, expectSequence } from '../lib/comfy.mjs';
import { load, paint, SAVE } from '../lib/graph.mjs';
import { expectPicture, expectSamePixels, noisePng } from '../lib/picture.mjs';
import { randomUUID } from 'node:crypto';

const SEED = '18446744073709551615';
const ODD = '9007199254740993'; // 2^53 + 1, which a double rounds

/** Posts a body as it is, so that no number passes through JavaScript's doubles. */
async function postRaw(server, body, headers) {
  const answer = await server.fetch('/prompt', { method: 'POST', body, headers });
  const text = await answer.text();
  must(answer.status === 200, `POST /prompt: ${answer.status} ${text}`);
  return JSON.parse(text).prompt_id;
}

/** Seeds above 2^53 stay exact in /queue and /history. */
async function seeds({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint({ work: await server.work(0.7) });
  graph.prompt[1].inputs.seed = 'SEED';
  graph.prompt[8].inputs.noise_seed = 'ODD';
  const body = JSON.stringify({ prompt: graph.prompt, client_id: client.clientId })
    .replace('"SEED"', SEED).replace('"ODD"', ODD);
  const id = await postRaw(server, body, { 'content-type': 'application/json' });
  const queue = await server.text('/queue');
  if (queue.includes(id)) for (const seed of [SEED, ODD]) must(queue.includes(seed), `${seed} is not in /queue: ${queue}`);
  const entry = await client.end(id);
  await server.expect(entry.outputs, graph, 'the prompt with big seeds');
  for (const path of [`/history/${id}`, '/history?max_items=64']) {
    const text = await server.text(path);
    for (const seed of [SEED, ODD]) must(text.includes(seed), `${seed} is not in ${path}`);
  }
}

/** A big number reaches the node itself, and its text comes back in `executed`. */
async function bigNumber({ url }) {
  const server = new Server(url);
  await server.need('PrimitiveInt');
  await server.need('PreviewAny');
  const client = await server.connect();
  const prompt = {
    1: { class_type: 'PrimitiveInt', inputs: { value: 'ODD' } },
    2: { class_type: 'PreviewAny', inputs: { source: ['1', 0] } },
  };
  const body = JSON.stringify({ prompt, client_id: client.clientId }).replace('"ODD"', ODD);
  const id = await postRaw(server, body, {});
  const entry = await client.end(id);
  same(entry.outputs[2]?.text, [ODD], 'text of the number');
  const executed = client.of(id).find((frame) => frame.type === 'executed');
  same(executed?.data.output?.text, [ODD], 'text in executed');
}

/** JSON is accepted under any Content-Type, and with query keys that the server does not know. */
async function contentTypes({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const types = ['application/json', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application/octet-stream', null];
  for (const type of types) {
    const graph = paint();
    const body = new TextEncoder().encode(JSON.stringify({ prompt: graph.prompt, client_id: client.clientId, number: 0.5 }));
    const id = await postRaw(new Server(url), body, type ? { 'content-type': type } : {});
    await server.expect((await client.end(id)).outputs, graph, `posted as ${type}`);
  }
  const graph = paint();
  const answer = await server.fetch(`/api/prompt?clientId=${client.clientId}&odd=1`, {
    method: 'POST',
    body: JSON.stringify({ prompt: graph.prompt, client_id: client.clientId, front: true, extra_data: { extra_pnginfo: { workflow: { note: 'ünï' } } } }),
    headers: { 'content-type': 'application/json', 'comfy-user': 'default' },
  });
  const { prompt_id: id } = await answer.json();
  const entry = await client.end(id);
  await server.expect(entry.outputs, graph, 'posted to /api/prompt');
  same(entry.prompt[3].client_id, client.clientId, 'client_id in history');
  same(entry.prompt[3].extra_pnginfo, { workflow: { note: 'ünï' } }, 'extra_pnginfo in history');
}

/** History holds the graph exactly as it was posted, including key order and unusual characters. */
async function graphKept({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint({ prefix: 'conformance' });
  graph.prompt[1]._meta = { title: 'ünïcode " \\ \n 漢字 🎈' };
  const { entry } = await client.run(graph, { extra_data: { mine: [1, null, { a: 0.1 }] } });
  same(entry.prompt.length, 5, 'elements of the prompt tuple');
  same(JSON.stringify(entry.prompt[2]), JSON.stringify(graph.prompt), 'graph in history');
  same(entry.prompt[3].mine, [1, null, { a: 0.1 }], 'own extra_data in history');
  same(entry.prompt[4], [SAVE], 'outputs to execute');
}

/** SaveImageWebsocket: a client with the flag gets type 4, one without it type 1; both get their picture. */
async function previews({ url }) {
  const server = new Server(url);
  await server.need('SaveImageWebsocket');
  for (const [flags, type] of [[undefined, 1], [{ supports_preview_metadata: true }, 4], [{ supports_preview_metadata: false }, 1]]) {
    const client = await server.connect({ flags });
    if (flags) {
      const { data } = await client.frame((frame) => frame.type === 'feature_flags', 30_000, 'the answer to feature_flags');
      same(typeof data.max_upload_size, 'number', 'max_upload_size in feature_flags');
    }
    const graph = paint({ output: 'SaveImageWebsocket' });
    const id = await client.submit(graph);
    const entry = await client.end(id);
    same(entry.outputs, {}, 'outputs in history');
    const frames = client.frames.filter((frame) => frame.binary);
    same(frames.map((frame) => frame.binary.readUInt32BE(0)), [type], `binary types with flags ${JSON.stringify(flags)}`);
    const { header, image } = split(frames[0].binary);
    expectPicture(image, graph, `type ${type}`);
    if (type === 1) same(header, 2, 'format');
    else same([header.prompt_id, header.node_id, header.display_node_id, header.image_type], [id, SAVE, SAVE, 'image/png'], 'metadata');
    const at = client.frames.findIndex((frame) => frame.binary);
    const before = client.frames.slice(0, at).findLast((frame) => frame.type === 'executing');
    same(before.data.node, SAVE, 'node that is executing when the picture comes');
  }
}

function split(frame) {
  if (frame.readUInt32BE(0) === 1) return { header: frame.readUInt32BE(4), image: frame.subarray(8) };
  const length = frame.readUInt32BE(4);
  return { header: JSON.parse(frame.toString('utf8', 8, 8 + length)), image: frame.subarray(8 + length) };
}

/** A frame of about 20 MB arrives whole, and an upload of that size is accepted. */
async function bigFrame({ url }) {
  const server = new Server(url);
  await server.need('SaveImageWebsocket');
  const noise = noisePng(2640, 2640);
  if (noise.length < 20e6) throw new Skip(`only ${noise.length} bytes`);
  const { name } = await server.upload(`${randomUUID()}.png`, noise);
  const client = await server.connect();
  const prompt = {
    1: { class_type: 'LoadImage', inputs: { image: name } },
    2: { class_type: 'SaveImageWebsocket', inputs: { images: ['1', 0] } },
  };
  const id = await client.submit(prompt);
  await client.end(id);
  const frames = client.frames.filter((frame) => frame.binary);
  same(frames.length, 1, 'binary frames');
  expectSamePixels(split(frames[0].binary).image, noise, `a frame of ${frames[0].binary.length} bytes`);
  return `${noise.length} bytes up, ${frames[0].binary.length} down`;
}

/** A client that does not read its socket delays nobody. */
async function deafClient({ url }) {
  const server = new Server(url);
  await server.need('SaveImageWebsocket');
  const noise = noisePng(1200, 1200);
  const { name } = await server.upload(`${randomUUID()}.png`, noise);
  const deaf = await server.connect();
  deaf.socket.pause();
  for (let i = 0; i < 4; i++) {
    const graph = { ...load(name, { size: { width: 1200 + i, height: 1200 }, output: 'SaveImageWebsocket' }) };
    await server.submit(graph.prompt, { clientId: deaf.clientId });
  }
  const client = await Session.open(server);
  const { id } = await client.run(paint());
  expectSequence(client, id);
  deaf.socket.terminate();
}

await main({ seeds, bigNumber, contentTypes, graphKept, previews, bigFrame, deafClient });
