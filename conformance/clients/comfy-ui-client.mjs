// comfy-ui-client: the official example's flow in a small library.
import { randomUUID } from 'node:crypto';
import { library, main, must, same, within } from '../lib/case.mjs';
import { load, paint, SAVE } from '../lib/graph.mjs';
import { distinctColors, expectPicture, flatPng, randomColor } from '../lib/picture.mjs';

const { ComfyUIClient } = library('comfy-ui-client');

const PATIENCE = 60_000;

async function connected(url) {
  const client = new ComfyUIClient(new URL(url).host, randomUUID());
  await within(15_000, 'connect', client.connect());
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

/** Two prompts in turn, then the second again, cached. */
async function flow({ url }) {
  const client = await connected(url);
  await job(client, paint());
  const graph = paint();
  await job(client, graph);
  await job(client, graph);
  await client.disconnect();
}

/** Three clients at once. */
async function concurrent({ url }) {
  await Promise.all(distinctColors(3).map(async (color) => job(await connected(url), paint({ color }))));
}

/** A picture sent by the client, then used. */
async function upload({ url }) {
  const client = await connected(url);
  const color = randomColor();
  const name = `${randomUUID()}.png`;
  const sent = await client.uploadImage(flatPng({ width: 48, height: 48, color }), name, true);
  same(sent.name, name, 'name of the upload');
  await job(client, { ...load(sent.name), color });
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
