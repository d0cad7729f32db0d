// A workflow with two outputs that have nothing in common, twice: the first time tells a hub how long they take, the second time
// it makes them on two instances at once. The page shows one prompt, and each picture on its own node. Simulated instances blur
// in no time, so that a hub has no reason to divide the work.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, paint } from '../lib/workflow.mjs';

export const name = 'parts';

export async function run({ chrome }) {
  const ui = await chrome.visit();
  await ui.load('browser-parts', paint({ branches: 2, seconds: 12 }));
  const took = [];
  for (const turn of ['whole', 'in parts']) {
    const colors = [randomColor(), randomColor()];
    const began = Date.now();
    const id = await ui.run(...colors);
    await until(`both nodes show their pictures, ${turn}`, async () => {
      const pictures = await ui.pictures();
      return pictures.every((picture, n) => picture && sameColor(picture.color, colors[n]));
    });
    took.push(((Date.now() - began) / 1000).toFixed(1));
    for (const { width, height } of await ui.pictures()) assert.deepEqual([width, height], [WIDTH, HEIGHT]);
    await until('nothing is active', async () => await ui.panel.active() === 0);
    await until('the title is calm', async () => !/%/.test(await ui.title()));
    const [first, next] = await ui.panel.tasks();
    assert.deepEqual([first.id, first.state], [id, 'done']);
    assert.notEqual(next?.id, id, 'the panel shows the prompt twice');
  }
  await chrome.shoot('parts');
  return `${took.join(' s, then ')} s`;
}
