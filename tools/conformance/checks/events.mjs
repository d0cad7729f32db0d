// What a client's socket receives: its own prompts, whole and in order, and nothing about anyone else's.
import { randomUUID } from 'node:crypto';
import { main, must, same, sleep } from '../lib/case.mjs';
import { PATIENCE, Server, expectSequence, label } from '../lib/comfy.mjs';
import { load, paint, SAVE } from '../lib/graph.mjs';
import { distinctColors, randomColor } from '../lib/picture.mjs';

/** Of several clients at once, each sees whole sequences, and only of its own prompts. */
async function twoClients({ url, instances }) {
  const server = new Server(url);
  const clients = await Promise.all(Array.from({ length: Math.max(2, instances + 1) }, () => server.connect()));
  const work = await server.work(0.7);
  const colors = distinctColors(clients.length * 2);
  await Promise.all(clients.map(async (client, i) => {
    await Promise.all([0, 1].map((n) => client.run(paint({ color: colors[2 * i + n], work: n ? work : [] }))));
  }));
  await sleep(300); // a frame too many may come late
  for (const client of clients) {
    client.onlyOwn();
    for (const id of client.sent) expectSequence(client, id);
    must(!client.closed, 'a socket was closed');
  }
  return `${clients.length} clients, ${clients.length * 2} prompts`;
}

/** Prompts that one client submits together arrive as one whole sequence after the other. */
async function serial({ url, instances }) {
  const server = new Server(url);
  const client = await server.connect();
  const work = await server.work(0.7);
  const graphs = distinctColors(instances + 1).map((color) => paint({ color, work }));
  await Promise.all(graphs.map((graph) => client.run(graph)));
  await sleep(300);
  let open = null;
  for (const frame of client.frames) {
    const id = frame.data?.prompt_id;
    if (frame.type === 'execution_start') {
      must(open === null, `${id} starts while ${open} is open`);
      open = id;
    }
    if (id) must(id === open, `${frame.type} of ${id} while ${open} is open`);
    if (frame.type === 'executing' && frame.data.node === null) open = null;
  }
  for (const id of client.sent) expectSequence(client, id);
  return `${graphs.length} prompts of one client`;
}

/** When the same graph comes again, the listener gets `executed` for every output node, though nothing ran. */
async function cached({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint();
  await client.run(graph);
  for (let i = 0; i < 3; i++) {
    const { id } = await client.run(graph);
    expectSequence(client, id);
    const executed = client.of(id).filter((frame) => frame.type === 'executed');
    same(executed.map((frame) => frame.data.node), [SAVE], 'executed nodes of the repeated graph');
    await server.expect({ [SAVE]: executed[0].data.output }, graph, 'executed of the repeated graph');
  }
}

/** A prompt_id that the client chose comes back unchanged everywhere. */
async function ownId({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint();
  const wanted = randomUUID();
  const { id, entry } = await client.run(graph, { prompt_id: wanted });
  same(id, wanted, 'prompt_id answered');
  same(entry.prompt[1], wanted, 'prompt_id in history');
  expectSequence(client, wanted);
}

/** The sid is the client's own, or one that the server makes up. */
async function sid({ url }) {
  const server = new Server(url);
  const own = await server.connect();
  same(own.frames[0].type, 'status', 'first frame');
  same(own.frames[0].data.sid, own.clientId, 'sid of a client that named itself');
  const named = await server.connect({ clientId: null });
  must(typeof named.clientId === 'string' && named.clientId.length >= 8, `no sid for a client without clientId: ${named.clientId}`);
  const graph = paint();
  await named.run(graph);
  await own.run(paint());
  own.onlyOwn();
  named.onlyOwn();
  const api = await server.connect({ path: '/api/ws' });
  await api.run(paint());
}

/** Of two sockets with one clientId, the newer gets everything and the older nothing more. */
async function newestSocket({ url }) {
  const server = new Server(url);
  const old = await server.connect();
  const young = await server.connect({ clientId: old.clientId });
  const { id } = await young.run(paint());
  expectSequence(young, id);
  await sleep(200);
  same(old.of(id).length, 0, 'frames at the older socket');
}

/** After the older socket of a clientId closes, the newer one still gets everything (a stock ComfyUI loses it). */
async function oldSocketCloses({ url }) {
  const server = new Server(url);
  const old = await server.connect();
  const young = await server.connect({ clientId: old.clientId });
  await old.close();
  await sleep(500);
  const { id } = await young.run(paint());
  expectSequence(young, id);
}

/** A socket that opens after the POST still gets everything (a stock ComfyUI sends it nothing). */
async function lateSocket({ url }) {
  const server = new Server(url);
  const clientId = randomUUID();
  const graph = paint();
  const id = await server.submit(graph.prompt, { clientId });
  await server.ended(id);
  const late = await server.connect({ clientId });
  late.sent.add(id);
  await late.end(id);
  expectSequence(late, id);
}

/**
 * Synchronous scripts open a socket for each prompt under one clientId, read it to the end, close it properly and go on at once.
 * They never read the server's ping. No socket hears of an earlier prompt.
 */
async function socketPerPrompt({ url }) {
  const server = new Server(url);
  const clientId = randomUUID();
  const prompts = 12;
  for (let i = 0; i < prompts; i++) {
    const client = await server.connect({ clientId, autoPong: false });
    const id = await client.submit(paint());
    await client.frame((frame) => frame.type === 'executing' && frame.data.node === null, PATIENCE, `the end of ${id}`);
    expectSequence(client, id);
    client.onlyOwn();
    await client.close();
  }
  return `${prompts} prompts`;
}

/** As socketPerPrompt, but each socket is dropped without a close frame, with and without a look at the result first. */
async function socketDropped({ url }) {
  const server = new Server(url);
  const clientId = randomUUID();
  for (const looks of [false, true]) {
    for (let i = 0; i < 4; i++) {
      const client = await server.connect({ clientId, autoPong: false });
      const id = await client.submit(paint());
      await client.frame((frame) => frame.type === 'executing' && frame.data.node === null, PATIENCE, `the end of ${id}`);
      expectSequence(client, id);
      client.onlyOwn();
      if (looks) must(await server.history(id), `no history of ${id}`);
      client.socket.terminate();
      await sleep(200); // a stock ComfyUI that notices late takes the next socket for the old one
    }
  }
}

/** An idle socket gets something every 10 s, so that clients with a watchdog stay connected. A busy machine may be late. */
async function keepAlive({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const before = client.frames.length;
  await client.frame((frame) => frame.type === 'status', 30_000, 'a status on an idle socket', before);
}

/** When a graph fails while it runs, the client is told which node failed, and the prompt ends like any other. */
async function executionError({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const { prompt } = (await server.classes()).has('SimulatedWork')
    ? paint({ work: [{ class_type: 'SimulatedWork', inputs: { seconds: 0.2, steps: 1, fail: 'error', nonce: randomColor() } }] })
    : load((await server.upload(`${randomUUID()}.png`, Buffer.from('not a picture'))).name); // found, but unreadable
  const id = await client.submit(prompt);
  const entry = await client.end(id);
  same([entry.status.status_str, entry.status.completed], ['error', false], 'status in history');
  const error = client.of(id).find((frame) => frame.type === 'execution_error')?.data;
  must(error, `no execution_error: ${client.of(id).map(label).join(' ')}`);
  must(prompt[error.node_id]?.class_type === error.node_type, `node of the error: ${error.node_id} ${error.node_type}`);
  for (const key of ['exception_message', 'exception_type']) must(typeof error[key] === 'string', `no ${key}`);
  must(Array.isArray(error.traceback), 'no traceback');
  must(!client.of(id).some((frame) => frame.type === 'execution_success'), 'execution_success after an error');
  must(entry.status.messages.some(([type, data]) => type === 'execution_error' && data.node_id === error.node_id), 'no execution_error in history');
  await client.run(paint()); // the client goes on
}

await main({ twoClients, serial, cached, ownId, sid, newestSocket, oldSocketCloses, lateSocket, socketPerPrompt, socketDropped, keepAlive, executionError });
