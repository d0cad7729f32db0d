// The HTTP surface as clients read it: shapes, counts, and errors in ComfyUI's own words.
import { randomUUID } from 'node:crypto';
import { main, must, same, sleep, brief } from '../lib/case.mjs';
import { PATIENCE, Server } from '../lib/comfy.mjs';
import { paint } from '../lib/graph.mjs';

/** From the answer to the POST on, an id is always in /queue or in /history, and its history entry is whole. */
async function neverLost({ url, instances }) {
  const server = new Server(url);
  const work = await server.work(0.7);
  const graphs = Array.from({ length: instances + 2 }, () => paint({ work }));
  const left = new Set();
  for (const graph of graphs) left.add({ graph, id: await server.submit(graph.prompt, { clientId: randomUUID() }) });
  const end = Date.now() + PATIENCE;
  let looks = 0;
  while (left.size) {
    must(Date.now() < end, 'prompts do not end');
    for (const job of left) {
      const place = await server.place(job.id);
      const entry = await server.history(job.id);
      must(place || entry, `${job.id} is in neither /queue nor /history`);
      looks++;
      if (!entry) continue;
      same([entry.status?.status_str, entry.status?.completed], ['success', true], 'status of a fresh history entry');
      await server.expect(entry.outputs, job.graph, 'a fresh history entry');
      left.delete(job);
    }
    await sleep(5);
  }
  return `${looks} looks`;
}

/** Within 500 ms of `execution_success`, a prompt has left /queue and is in history. */
async function promptEnd({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  for (let i = 0; i < 5; i++) {
    const id = await client.submit(paint());
    const { at } = await client.frame((frame) => frame.type === 'execution_success' && frame.data.prompt_id === id);
    await sleep(Math.max(0, at + 450 - Date.now()));
    same(await server.place(id), null, 'place 450 ms after execution_success');
    must(await server.history(id), 'no history 450 ms after execution_success');
  }
}

/** queue_remaining is the same on the socket and in GET /prompt: it counts a prompt, and is 0 at the end. */
async function counts({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint({ work: await server.work(5) });
  const id = await client.submit(graph);
  await client.frame((frame) => frame.type === 'status' && frame.data.status.exec_info.queue_remaining >= 1, 30_000, 'a status that counts the prompt');
  const query = `?clientId=${client.clientId}`;
  const { exec_info: info } = await server.json(`/prompt${query}`);
  must(info.queue_remaining >= 1, `GET /prompt while it runs: ${brief(info)}`);
  await client.end(id);
  const before = client.frames.slice(0, client.frames.findIndex((frame) => frame.type === 'executing' && frame.data.node === null));
  const last = before.findLast((frame) => frame.type === 'status');
  same(last.data.status.exec_info.queue_remaining, 0, 'queue_remaining before the end');
  same((await server.json(`/prompt${query}`)).exec_info.queue_remaining, 0, 'GET /prompt after the end');
}

/** A prompt without client_id, or from a client without a socket, has its result in history. */
async function pollers({ url }) {
  const server = new Server(url);
  for (const clientId of [undefined, randomUUID()]) {
    const graph = paint();
    const id = await server.submit(graph.prompt, { clientId });
    const entry = await server.ended(id);
    await server.expect(entry.outputs, graph, `client_id ${clientId}`);
  }
}

/** Errors of POST /prompt: 400, with `error` and `node_errors` as ComfyUI words them. */
async function refusals({ url }) {
  const server = new Server(url);
  const post = async (body) => {
    const answer = await server.fetch('/prompt', { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
    return { status: answer.status, body: await answer.json() };
  };
  const none = await post({});
  same([none.status, none.body.error?.type], [400, 'no_prompt'], 'a body without prompt');
  const empty = await post({ prompt: {} });
  same([empty.status, empty.body.error?.type], [400, 'prompt_no_outputs'], 'an empty graph');
  const odd = paint().prompt;
  odd[1].class_type = 'ThereIsNoSuchClass';
  const unknown = await post({ prompt: odd });
  same(unknown.status, 400, 'status of an unknown class');
  must(['invalid_prompt', 'missing_node_type'].includes(unknown.body.error.type), `error of an unknown class: ${brief(unknown.body)}`);
  const bad = paint().prompt;
  bad[1].inputs.width = 'wide';
  delete bad[8].inputs.crop;
  const invalid = await post({ prompt: bad });
  same([invalid.status, invalid.body.error.type], [400, 'prompt_outputs_failed_validation'], 'bad inputs');
  const errors = Object.fromEntries(Object.entries(invalid.body.node_errors).map(([id, { errors: list }]) => [id, list.map(({ type }) => type)]));
  must(errors[1]?.includes('invalid_input_type') || errors[8]?.includes('required_input_missing'), `node_errors: ${brief(invalid.body)}`);
  const node = Object.values(invalid.body.node_errors)[0];
  must(Array.isArray(node.dependent_outputs) && typeof node.class_type === 'string', `shape of node_errors: ${brief(node)}`);
}

/** The routes that clients read before they do anything. */
async function routes({ url }) {
  const server = new Server(url);
  same(await server.json(`/history/${randomUUID()}`), {}, 'history of an unknown id');
  for (const prefix of ['', '/api']) {
    const { system, devices } = await server.json(`${prefix}/system_stats`);
    for (const key of ['os', 'python_version', 'comfyui_version']) must(typeof system[key] === 'string', `system.${key}: ${brief(system)}`);
    must(typeof system.embedded_python === 'boolean', 'system.embedded_python');
    must(devices.length >= 1, 'no devices');
    for (const key of ['name', 'type']) must(typeof devices[0][key] === 'string', `devices[0].${key}`);
    for (const key of ['vram_total', 'vram_free', 'torch_vram_total', 'torch_vram_free']) must(Number.isInteger(devices[0][key]), `devices[0].${key}`);
    const all = await server.json(`${prefix}/object_info`);
    must(all.SaveImage?.output_node === true, 'SaveImage in object_info');
    const one = await server.json(`${prefix}/object_info/EmptyImage`);
    same(one.EmptyImage.name, 'EmptyImage', 'object_info of one class');
    same(one.EmptyImage.input, all.EmptyImage.input, 'inputs of EmptyImage');
    same(await server.json(`${prefix}/object_info/There%20is%20no%20such%20class`), {}, 'object_info of an unknown class');
    for (const path of ['/embeddings', '/extensions']) must(Array.isArray(await server.json(prefix + path)), `${path} is no list`);
    must(Object.hasOwn(await server.json(`${prefix}/features`), 'max_upload_size'), '/features');
    const queue = await server.json(`${prefix}/queue`);
    must(Array.isArray(queue.queue_running) && Array.isArray(queue.queue_pending), `/queue: ${brief(queue)}`);
    must(typeof (await server.json(`${prefix}/prompt`)).exec_info.queue_remaining === 'number', 'GET /prompt');
    must(Array.isArray(await server.json(`${prefix}/models`)), '/models is no list');
  }
  same((await server.fetch('/nobody/knows/this')).status, 404, 'status of an unknown path');
}

/** History as a list: max_items, newest last, and deleting an entry. */
async function historyList({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const done = [];
  for (let i = 0; i < 3; i++) done.push((await client.run(paint())).id);
  const ids = Object.keys(await server.json('/history?max_items=200'));
  must(done.every((id) => ids.includes(id)), 'a prompt is missing in /history');
  same(ids.filter((id) => done.includes(id)), done, 'order of /history');
  same(Object.keys(await server.json('/history?max_items=1')), [done[2]], 'the newest entry');
  await server.post('/history', { delete: [done[0]] });
  same(await server.history(done[0]), undefined, 'a deleted entry');
  must(await server.history(done[1]), 'another entry went too');
}

/** The web UI is served. */
async function frontend({ url }) {
  const server = new Server(url);
  const answer = await server.fetch('/');
  const page = await answer.text();
  must(answer.ok && /text\/html/.test(answer.headers.get('content-type')), `GET /: ${answer.status} ${answer.headers.get('content-type')}`);
  const script = page.match(/<script[^>]+src="\.?\/?([^"]+)"/)?.[1];
  must(script, `no script in the page: ${page.slice(0, 300)}`);
  const code = await server.fetch(`/${script}`);
  must(code.ok && /javascript/.test(code.headers.get('content-type')), `GET /${script}: ${code.status} ${code.headers.get('content-type')}`);
  must((await code.arrayBuffer()).byteLength > 1000, 'an empty script');
}

/** With prompts on all instances, the listing looks like that of a single ComfyUI: at most one runs, the rest wait. */
async function oneRunning({ url, instances }) {
  const server = new Server(url);
  const work = await server.work(1);
  const ids = [];
  for (let i = 0; i < 2 * instances; i++) ids.push(await server.submit(paint({ work }).prompt, { clientId: randomUUID() }));
  const end = Date.now() + PATIENCE;
  for (let looks = 1; ; looks++) {
    must(Date.now() < end, 'prompts do not end');
    const { queue_running: running, queue_pending: pending } = await server.json('/queue');
    must(running.length <= 1, `${running.length} run: ${brief(running.map((row) => row[1]))}`);
    const listed = new Set([...running, ...pending].map((row) => row[1]));
    for (const id of ids) must(listed.has(id) || (await server.history(id)), `${id} is in neither /queue nor /history`);
    if (!listed.size) return `${looks} looks`;
    await sleep(20);
  }
}

await main({ neverLost, promptEnd, counts, pollers, refusals, routes, historyList, frontend, oneRunning });
