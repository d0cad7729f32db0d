// @stable-canvas/comfyui-client: over the WebSocket and by polling.
import { library, main, must, same, within } from '../lib/case.mjs';
import { paint, SAVE } from '../lib/graph.mjs';
import { distinctColors, expectPicture } from '../lib/picture.mjs';

const { Client, Workflow } = library('@stable-canvas/comfyui-client');
const WebSocket = library('ws');

const PATIENCE = 60_000; // ms
const TURNS = 3;

function open(url, more = {}) {
  return new Client({ api_host: new URL(url).host, WebSocket, fetch, ...more });
}

async function connected(url, more) {
  const client = open(url, more);
  await within(20_000, 'connect', client.connect());
  return client;
}

/** The graph of graph.mjs in the client's own way of writing graphs. */
function workflow(graph) {
  const flow = new Workflow();
  const { EmptyImage, ImageScale, SaveImage } = flow.classes;
  const [image] = EmptyImage(graph.prompt[1].inputs);
  const [scaled] = ImageScale({ ...graph.prompt[8].inputs, image });
  SaveImage({ ...graph.prompt[SAVE].inputs, images: scaled });
  return flow;
}

async function expect(output, graph, what) {
  same(output.images.length, 1, `${what}: pictures`);
  const [image] = output.images;
  const bytes = image.type === 'buff' ? image.data : await (await fetch(image.data)).arrayBuffer();
  expectPicture(bytes, graph, what);
}

/**
 * Runs a graph and checks its picture. The client starts to listen a few turns of its event loop after it has read the answer to
 * its POST. It misses pictures or the end every time if the server shows the run before it answers, and now and then on a busy machine.
 */
async function invoke(client, graph, what) {
  for (let turn = 1; ; turn++) {
    try {
      await expect(await within(PATIENCE / TURNS, what, workflow(graph).invoke(client)), graph, what);
      return;
    } catch (error) {
      if (turn === TURNS) throw error;
    }
  }
}

/** One workflow over the socket, then another with the same client. */
async function websocket({ url }) {
  const client = await connected(url);
  for (const turn of ['first', 'second']) await invoke(client, paint(), `${turn} invoke`);
}

/** The same graph again, which the server has cached. */
async function cached({ url }) {
  const client = await connected(url);
  const graph = paint();
  for (const turn of ['first', 'cached']) await invoke(client, graph, `${turn} invoke`);
}

/** No socket at all: polls /queue until the prompt is gone, then reads /history. */
async function polling({ url }) {
  const client = open(url);
  const graph = paint();
  await expect(await within(PATIENCE, 'invoke_polling', workflow(graph).invoke_polling(client)), graph, 'invoke_polling');
}

/** Paths under /api, as behind many proxies. */
async function apiBase({ url }) {
  const client = await connected(url, { api_base: '/api' });
  await invoke(client, paint(), 'invoke');
}

/** Several workflows of one client at once, over the socket. */
async function concurrent({ url }) {
  const client = await connected(url);
  const graphs = distinctColors(3).map((color) => paint({ color }));
  await Promise.all(graphs.map((graph, i) => invoke(client, graph, `invoke ${i}`)));
}

/** Several clients at once, each by polling. */
async function concurrentPolling({ url }) {
  const graphs = distinctColors(3).map((color) => paint({ color }));
  await within(PATIENCE, 'three pollers', Promise.all(graphs.map(async (graph) => {
    await expect(await workflow(graph).invoke_polling(open(url)), graph, 'invoke_polling');
  })));
}

/** The client's wrappers of plain routes. */
async function routes({ url }) {
  const client = open(url);
  const stats = await client.getSystemStats();
  must(stats.devices.length >= 1, 'no devices');
  must((await client.getNodeDefs()).SaveImage, 'SaveImage in getNodeDefs');
  const { Running, Pending } = await client.getQueue();
  must(Array.isArray(Running) && Array.isArray(Pending), 'getQueue');
  must((await client.getSamplers()).includes('euler'), 'euler in getSamplers');
  must(Array.isArray(await client.getSDModels()), 'getSDModels');
  must(Array.isArray(await client.getEmbeddings()), 'getEmbeddings');
  await client.interrupt();
}

/** When a graph is refused, the client makes its own error from the JSON of the 400. */
async function refused({ url }) {
  const client = await connected(url);
  const graph = paint();
  graph.prompt[1].inputs.width = 'wide';
  const error = await within(PATIENCE, 'invoke', workflow(graph).invoke(client)).then(() => null, (thrown) => thrown);
  must(error, 'a bad graph was accepted');
  must(!(error instanceof SyntaxError), `the client could not read the refusal: ${error}`);
}

await main({ websocket, cached, polling, apiBase, concurrent, concurrentPolling, routes, refused });
