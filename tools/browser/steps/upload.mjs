// A picture is uploaded with the button of the node that loads pictures, and run: the same picture comes out.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, fresh, load } from '../lib/workflow.mjs';

export const name = 'upload';

export async function run({ chrome }) {
  const ui = await chrome.visit();
  await ui.load('browser-upload', load());
  const file = `${fresh('browser')}.png`;
  const color = randomColor();
  await ui.upload(file, color);
  await ui.click();
  const picture = await until('the node shows a picture', () => ui.picture());
  assert.deepEqual(picture, { width: WIDTH, height: HEIGHT, color: picture.color });
  assert.ok(sameColor(picture.color, color), `the picture is ${picture.color}, not ${color}`);
  await until('nothing is active', async () => await ui.panel.active() === 0);
  return '';
}
