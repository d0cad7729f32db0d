// Five jobs at once: the panel shows all of them while they wait and run, and then five right pictures.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, paint } from '../lib/workflow.mjs';

export const name = 'queue';

const COUNT = 5;

export async function run({ chrome, simulated, instances }) {
  const ui = await chrome.visit();
  const colors = [];
  const post = async () => {
    colors.unshift(randomColor());
    await ui.run(colors[0]);
  };
  // The first lasts longest: with several instances, younger ones overtake it. None ends before all are posted.
  const seconds = Math.ceil(5 + ui.slowness);
  await ui.load('browser-queue-long', paint({ seconds: seconds * 2, simulated }));
  await post();
  await ui.load('browser-queue', paint({ seconds, simulated }));
  while (colors.length < COUNT) await post();

  const atOnce = Math.min(instances, COUNT - 1);
  const count = (tasks, state) => tasks.filter((task) => task.state === state).length;
  let most = 0; // the most jobs that the panel showed waiting or running
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
  await until('five right pictures', async () => {
    const newest = (await ui.panel.tasks()).slice(0, COUNT);
    return colors.every((color) => newest.filter(({ picture }) => isRight(picture, color)).length === 1);
  });
  return `up to ${most} listed, ${atOnce} at once`;
}

const isRight = (picture, color) => picture?.width === WIDTH && picture.height === HEIGHT && sameColor(picture.color, color);
