// Five at once: the panel shows all of them, those that wait and those that run, and then five right pictures.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, paint } from '../lib/workflow.mjs';

export const name = 'queue';

const COUNT = 5;

// The older web UI adds to its list only what has a higher number than all that it shows. On one ComfyUI jobs end in the
// order of their numbers. Behind a hub one that runs beside others may end after a younger one; the page then shows it
// after its next reload. So long, in ms, it may take to be shown without.
const OVERTAKEN = 10_000;

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
  await until('the node shows one of them', async () => {
    const picture = await ui.picture();
    return colors.some((color) => isRight(picture, color));
  });
  const all = async () => {
    const newest = (await ui.panel.tasks()).slice(0, COUNT);
    return colors.every((color) => newest.filter(({ picture }) => isRight(picture, color)).length === 1);
  };
  let note = `up to ${most} listed, ${atOnce} at once`;
  if (!(await until('', all, OVERTAKEN).catch(() => false))) {
    await ui.reload();
    await ui.panel.open();
    await until('five right pictures', all);
    note += ', some shown only after a reload';
  }
  return note;
}

const isRight = (picture, color) => picture?.width === WIDTH && picture.height === HEIGHT && sameColor(picture.color, color);
