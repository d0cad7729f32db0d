// comfy-ui-client: the official example's flow in a small library.
import { randomUUID } from 'node:crypto';
import { library, main, must, same, within } from '../lib/case.mjs';
import { Server } from '../lib/comfy.mjs';
import { load, paint, SAVE } from '../lib/graph.mjs';
import { distinctColors, expectPicture, flatPng, randomColor } from '../lib/picture.mjs';

const { ComfyUIClient } = library('comfy-ui-client');

const PATIENCE = 60_000;

/** The client starts to listen after it has read the answer to its POST, so it misses a prompt that has ended by then. */
const work = (url) => new Server(url).work(2);

async function connected(url) {
  const client = new ComfyUIClient(new URL(url).host, randomUUID());
  await within(PATIENCE, 'connect', client.connect());
  return client;
}

async function job(client, graph) {
  const images = await within(PATIENCE, 'getImages', client.getImages(graph.prompt));
  same(Object.keys(images), [SAVE], 'nodes with pictures');
  same(images[SAVE].length, 1, 'pictures');
  const [{ blob, image }] = images[SAVE];
  expectPicture(await blob.arrayBuffer(), graph, image.filename);
  return image;
}

/** Two prompts, one after the other. */
async function flow({ url }) {
  const client = await connected(url);
  for (let i = 0; i < 2; i++) await job(client, paint({ work: await work(url) }));
  await client.disconnect();
}

/** Three clients at once. */
async function concurrent({ url }) {
  const steps = await work(url);
  await Promise.all(distinctColors(3).map(async (color) => job(await connected(url), paint({ color, work: steps }))));
}

/** A picture sent by the client, then used. */
async function upload({ url }) {
  const client = await connected(url);
  const color = randomColor();
  const name = `${randomUUID()}.png`;
  const sent = await client.uploadImage(flatPng({ width: 512, height: 512, color }), name, true);
  same(sent.name, name, 'name of the upload');
  await job(client, { ...load(sent.name, { work: await work(url) }), color });
}

async function routes({ url }) {
  const client = await connected(url);
  must((await client.getSystemStats()).devices.length >= 1, 'no devices');
  must((await client.getObjectInfo()).SaveImage, 'SaveImage in getObjectInfo');
  must(Array.isArray((await client.getQueue()).queue_running), 'getQueue');
  must(typeof (await client.getPrompt()).exec_info.queue_remaining === 'number', 'getPrompt');
  must(Array.isArray(await client.getEmbeddings()), 'getEmbeddings');
  must(Array.isArray(await client.getExtensions()), 'getExtensions');
}

await main({ flow, concurrent, upload, routes });
