// @saintno/comfyui-sdk: one client, one client with two jobs at once, a pool, and a client that idled.
import { library, main, must, same, sleep, until, within } from '../lib/case.mjs';
import { paint, SAVE } from '../lib/graph.mjs';
import { distinctColors, expectPicture } from '../lib/picture.mjs';

const { CallWrapper, ComfyApi, ComfyPool, EQueueMode, PromptBuilder } = library('@saintno/comfyui-sdk');
const WebSocket = library('ws');

const PATIENCE = 60_000;

const create = (url) => new ComfyApi(url, undefined, { customWebSocketImpl: WebSocket });

async function ready(url) {
  const api = create(url);
  api.init();
  await within(30_000, 'waitForReady', api.waitForReady());
  return api;
}

/** Runs a graph to its end and checks the picture that the client names. */
async function job(api, graph) {
  const builder = new PromptBuilder(graph.prompt, [], ['images']).setOutputNode('images', SAVE);
  const done = new Promise((finish, fail) => {
    new CallWrapper(api, builder).onFinished(finish).onFailed(fail).run().catch(fail);
  });
  const output = await within(PATIENCE, 'CallWrapper', done);
  const { images } = output.images;
  same(images.length, 1, 'pictures');
  const bytes = await (await fetch(api.getPathImage(images[0]))).arrayBuffer();
  expectPicture(bytes, graph, images[0].filename);
  return images[0];
}

async function one({ url }) {
  const api = await ready(url);
  const graph = paint();
  await job(api, graph);
  await job(api, graph); // cached: the client must still get `executed`
}

async function twoAtOnce({ url }) {
  const api = await ready(url);
  await Promise.all(distinctColors(2).map((color) => job(api, paint({ color }))));
}

async function pool({ url }) {
  return withPool(url, EQueueMode.PICK_ZERO);
}

async function poolRouting({ url }) {
  return withPool(url, EQueueMode.PICK_ROUTINE);
}

async function poolLowest({ url }) {
  return withPool(url, EQueueMode.PICK_LOWEST);
}

async function withPool(url, mode) {
  const clients = [create(url), create(url)];
  const all = new ComfyPool(clients, mode);
  // A job given to PICK_ROUTINE before a client is online makes its index NaN (0 % 0), and it never picks again.
  await until(30_000, 'both clients online', () => clients.every((client) => client.isReady));
  await sleep(200);
  const graphs = distinctColors(4).map((color) => paint({ color }));
  const used = new Set();
  const work = graphs.map((graph) => (api, index) => {
    used.add(index);
    return job(api, graph);
  });
  const files = await within(PATIENCE, 'batch', all.batch(work));
  same(files.length, graphs.length, 'results');
  return `${used.size} of 2 clients used`;
}

/** The client reconnects by itself when it has heard nothing for 10 s; its job must then run like any other. */
async function idle({ url }) {
  const api = await ready(url);
  let reconnects = 0;
  api.on('reconnected', () => {
    reconnects++;
  });
  await sleep(20_000);
  await job(api, paint());
  return `${reconnects} reconnects in 20 s`;
}

async function routes({ url }) {
  const api = await ready(url);
  must((await api.getSystemStats()).devices.length >= 1, 'no devices');
  must((await api.getNodeDefs()).SaveImage, 'SaveImage in getNodeDefs');
  must(Object.keys(await api.getNodeDefs('EmptyImage')).length === 1, 'getNodeDefs of one class');
  must(Array.isArray((await api.getQueue()).queue_running), 'getQueue');
  must(Array.isArray(await api.getCheckpoints()), 'getCheckpoints');
  must((await api.getSamplerInfo()).sampler, 'getSamplerInfo');
}

await main({ one, twoAtOnce, pool, poolRouting, poolLowest, idle, routes });
