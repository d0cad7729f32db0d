// node-sd-webui: the JavaScript client of A1111's API.
import { randomInt, randomUUID } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { library, main, must, same } from '../lib/case.mjs';
import { decode, flatPng } from '../lib/picture.mjs';

const { default: sdwebui } = library('node-sd-webui');

/** A picture that nobody else asks for: its prompt, seed and size. */
const newWish = () => ({
  prompt: `a fox ${randomUUID()}`, seed: randomInt(1 << 24), width: 16 + 2 * randomInt(32), height: 16 + 2 * randomInt(32), steps: 5,
});

/** The colour in which the simulated server paints a picture, as 0xRRGGBB. */
const colorOf = (seed) => ((seed & 255) << 16) | (((seed >> 8) & 255) << 8) | ((seed * 37) & 255);

/** Fails unless the picture is the one wished for: its parameters, its size, and the colours of its halves. */
function expect(image, { prompt, seed, width, height }, right = colorOf(seed)) {
  const bytes = Buffer.from(image, 'base64');
  must(bytes.includes(`parameters\0${prompt}\n`), `parameters of another picture, want ${prompt}`);
  must(bytes.includes(`Seed: ${seed},`), `no seed ${seed}`);
  const png = decode(bytes);
  same([png.width, png.height], [width, height], 'size');
  for (let i = 0; i < width * height; i++) {
    const want = 2 * (i % width) < width ? colorOf(seed) : right;
    must(png.data.readUIntBE(4 * i, 3) === want, `pixel ${i} is ${png.data.readUIntBE(4 * i, 3).toString(16)}, want ${want.toString(16)}`);
  }
}

function one({ images }) {
  same(images.length, 1, 'pictures');
  return images[0];
}

/** txt2img, then img2img from a picture of the client's own and from that of txt2img. */
async function pictures({ url }) {
  const client = sdwebui({ apiUrl: url });
  const [first, second, third, batch] = Array.from({ length: 4 }, newWish);
  const answer = await client.txt2img(first);
  const image = one(answer);
  expect(image, first);
  same(JSON.parse(answer.info).all_seeds, [first.seed], 'info');
  expect(one(await client.img2img({ ...second, imageData: [image] })), second, colorOf(first.seed));
  const own = flatPng({ width: 8, height: 8, color: 0x123456 }).toString('base64');
  expect(one(await client.img2img({ ...third, imageData: [`data:image/png;base64,${own}`] })), third, 0x123456);
  const { images } = await client.txt2img({ ...batch, batchCount: 2, batchSize: 2 });
  same(images.length, 4, 'pictures of the batch');
  images.forEach((each, number) => expect(each, { ...batch, seed: batch.seed + number }));
}

/** What one of many clients does: it is ready, waits for the others, and makes pictures. */
async function turns({ url }) {
  const client = sdwebui({ apiUrl: url });
  process.stdout.write('ready\n');
  await text(process.stdin);
  for (let i = 0; i < 2; i++) {
    const [first, second] = [newWish(), newWish()];
    const image = one(await client.txt2img(first));
    expect(image, first);
    expect(one(await client.img2img({ ...second, imageData: [image] })), second, colorOf(first.seed));
  }
}

/** The parameters in a file, as the client reads them. */
async function pngInfo({ url }) {
  const client = sdwebui({ apiUrl: url });
  const wish = newWish();
  const info = await client.pngInfo({ imageData: one(await client.txt2img(wish)) });
  same([info.prompt, info.seed, info.width, info.height, info.steps], [wish.prompt, wish.seed, wish.width, wish.height, wish.steps], 'pngInfo');
}

/** What the server refuses, the client throws. */
async function refused({ url }) {
  const failure = await sdwebui({ apiUrl: url }).txt2img({ ...newWish(), samplingMethod: 'none such' }).then(() => undefined, (error) => error);
  same(failure?.message, 'Not Found', 'failure');
}

await main({ pictures, turns, pngInfo, refused });
