// The fleet looks like one ComfyUI with one input folder and one output folder.
import { randomUUID } from 'node:crypto';
import { main, must, same } from '../lib/case.mjs';
import { Server } from '../lib/comfy.mjs';
import { load, paint } from '../lib/graph.mjs';
import { distinctColors, expectPicture, flatPng, randomColor, decode } from '../lib/picture.mjs';

/** A picture uploaded once is found by every prompt that names it, wherever that prompt runs. */
async function uploadAnywhere({ url, instances }) {
  const server = new Server(url);
  const color = randomColor();
  const { name } = await server.upload(`${randomUUID()}.png`, flatPng({ width: 512, height: 512, color }));
  const work = await server.work(0.7);
  const clients = await Promise.all(Array.from({ length: 2 * instances }, () => server.connect()));
  await Promise.all(clients.map((client, i) => client.run({ ...load(name, { size: { width: 64 + 8 * i, height: 64 }, work }), color })));
  return `${clients.length} prompts of ${clients.length} clients`;
}

/** When instances write files of the same name at once, each client gets its own picture under the name it was told. */
async function outputNames({ url, instances }) {
  const server = new Server(url);
  const prefix = `twin-${randomUUID().slice(0, 8)}`;
  const work = await server.work(0.7);
  const clients = await Promise.all(Array.from({ length: 2 * instances + 1 }, () => server.connect()));
  const colors = distinctColors(clients.length);
  const graphs = clients.map((_, i) => paint({ color: colors[i], prefix, work }));
  const done = await Promise.all(clients.map((client, i) => client.run(graphs[i])));
  const names = done.map(({ file }) => `${file.type}/${file.subfolder}/${file.filename}`);
  same(new Set(names).size, names.length, `distinct names of ${names.join(' ')}`);
  for (const name of names) must(name.startsWith(`output//${prefix}_`), `${name} has not the prefix that was asked for`);
  // Look again when all are done: no later file may have replaced an earlier one.
  await Promise.all(done.map(({ file }, i) => server.view(file).then((bytes) => expectPicture(bytes, graphs[i], file.filename))));
  return names.join(' ');
}

/** A file is there as soon as `executed` names it, before the prompt has ended. */
async function viewAtExecuted({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint();
  const id = await client.submit(graph);
  const { data } = await client.frame((frame) => frame.type === 'executed' && frame.data.prompt_id === id);
  await server.expect({ [data.node]: data.output }, graph, 'executed');
}

/** Uploading one name twice with different bytes gives two files, and each can be used. */
async function sameName({ url, instances }) {
  const server = new Server(url);
  const stem = randomUUID().slice(0, 8);
  const [first, second, third] = distinctColors(3);
  const one = await server.upload(`${stem}.png`, flatPng({ width: 40, height: 40, color: first }));
  same(named(one), { name: `${stem}.png`, subfolder: '', type: 'input' }, 'first upload');
  const two = await server.upload(`${stem}.png`, flatPng({ width: 40, height: 40, color: second }));
  same(named(two), { name: `${stem} (1).png`, subfolder: '', type: 'input' }, 'second upload, other bytes');
  const again = await server.upload(`${stem}.png`, flatPng({ width: 40, height: 40, color: first }));
  same(again.name, one.name, 'third upload, the first bytes');
  const clients = await Promise.all(Array.from({ length: 2 * instances }, () => server.connect()));
  await Promise.all(clients.map((client, i) => client.run({ ...load(i % 2 ? two.name : one.name), color: i % 2 ? second : first })));
  const over = await server.upload(`${stem}.png`, flatPng({ width: 40, height: 40, color: third }), { overwrite: 'true' });
  same(over.name, one.name, 'upload with overwrite');
  await Promise.all(clients.map((client) => client.run({ ...load(one.name), color: third })));
}

/** What an answer to an upload says without the asset that ComfyUI 0.38 makes of it. */
function named({ name, subfolder, type }) {
  return { name, subfolder, type };
}

/** Subfolders of uploads, annotated names, and pictures that other prompts have saved. */
async function folders({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const color = randomColor();
  const up = await server.upload('a.png', flatPng({ width: 40, height: 40, color }), { subfolder: `sub-${randomUUID().slice(0, 8)}`, overwrite: 'true' });
  await client.run({ ...load(`${up.subfolder}/${up.name}`), color });
  await client.run({ ...load(`${up.subfolder}/${up.name} [input]`), color });
  expectPicture(await server.view({ filename: up.name, subfolder: up.subfolder, type: 'input' }), { width: 40, height: 40, color }, 'the uploaded picture by /view');
  const painted = paint({ prefix: `deep/er/${randomUUID().slice(0, 8)}` });
  const { file } = await client.run(painted);
  same(file.subfolder, 'deep/er', 'subfolder of the output');
  await client.run({ ...load(`${file.subfolder}/${file.filename} [output]`), color: painted.color });
}

/** /view as clients read it: headers, conversion, Range, and 404 for what is not there. */
async function view({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const graph = paint();
  const { file } = await client.run(graph);
  const query = `/view?${new URLSearchParams(file)}`;
  const answer = await server.fetch(query);
  same(answer.headers.get('content-type'), 'image/png', 'Content-Type');
  same(answer.headers.get('content-disposition'), `filename="${file.filename}"`, 'Content-Disposition');
  const whole = Buffer.from(await answer.arrayBuffer());
  const part = await server.fetch(query, { headers: { range: 'bytes=8-31' } });
  same(part.status, 206, 'status of a range');
  must(Buffer.from(await part.arrayBuffer()).equals(whole.subarray(8, 32)), 'other bytes in the range');
  const webp = await server.view(file, { preview: 'webp;90' });
  same([webp.toString('latin1', 0, 4), webp.toString('latin1', 8, 12)], ['RIFF', 'WEBP'], 'preview=webp;90');
  const rgb = decode(await server.view(file, { channel: 'rgb' }));
  same([rgb.width, rgb.height], [graph.width, graph.height], 'size with channel=rgb');
  const missing = await server.fetch('/view?filename=there-is-no-such-file.png&type=output');
  same(missing.status, 404, 'status of a missing file');
  const outside = await server.fetch('/view?filename=..%2F..%2Fmain.py&type=output');
  must([400, 403, 404].includes(outside.status), `status of a file outside: ${outside.status}`);
  expectPicture(await server.view(file), graph, 'after all that');
}

await main({ uploadAnywhere, outputNames, viewAtExecuted, sameName, folders, view });
