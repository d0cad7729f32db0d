// Five at once: the panel shows all of them, those that wait and those that run, and then five right pictures.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, paint } from '../lib/workflow.mjs';

export const name = 'queue';

const COUNT = 5;

export async function run({ chrome, simulated, instances }) {
  const ui = await chrome.visit();
  await ui.load('browser-queue', paint({ seconds: 8, simulated }));
  const colors = [];
  for (let n = 0; n < COUNT; n++) {
    colors.unshift(randomColor());
    await ui.run(colors[0]);
  }

  const atOnce = Math.min(instances, COUNT - 1);
  const count = (tasks, state) => tasks.filter((task) => task.state === state).length;
  let most = 0; // that wait or run, in the panel
  await until(`${atOnce} run and others wait`, async () => {
    const tasks = await ui.panel.tasks();
    const [running, pending] = [count(tasks, 'running'), count(tasks, 'pending')];
    most = Math.max(most, running + pending);
    return running >= atOnce && pending > 0;
  });
  await chrome.shoot('queue-running');
  assert.ok(most > atOnce, 'none waited');

  await until('nothing is active', async () => await ui.panel.active() === 0);
  const tasks = await until('five pictures', async () => {
    const newest = (await ui.panel.tasks()).slice(0, COUNT);
    return newest.every(({ picture }) => picture) && newest;
  });
  assert.deepEqual(tasks.map(({ state }) => state), Array(COUNT).fill('done'));
  // Jobs that ran side by side may have ended in any order.
  const shown = tasks.map(({ picture }) => picture.color);
  for (const color of colors) assert.equal(shown.filter((other) => sameColor(color, other)).length, 1, `${color} among ${shown}`);
  for (const { picture } of tasks) assert.deepEqual(picture, { ...picture, width: WIDTH, height: HEIGHT });
  await until('the node shows one of them', async () => shown.includes((await ui.picture())?.color));
  return `up to ${most} listed, ${atOnce} at once`;
}
