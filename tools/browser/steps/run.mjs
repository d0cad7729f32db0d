// One workflow: its progress and its previews are shown while it runs, and then its picture, on the node and in the panel.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { HEIGHT, WIDTH, paint } from '../lib/workflow.mjs';

export const name = 'run';

export async function run({ chrome, simulated }) {
  const ui = await chrome.visit();
  await ui.load('browser-run', paint({ seconds: Math.ceil(3 + ui.slowness / 2), simulated }));
  const work = simulated ? 'SimulatedWork' : 'ImageBlur';
  const color = randomColor();
  const titles = await ui.titles();
  const previews = await ui.previews(work);
  await ui.run(color);
  await until('the panel shows the job as running', async () => (await ui.panel.tasks())[0]?.state === 'running');
  await chrome.shoot('run-running');

  const picture = await until('the node shows a picture', () => ui.picture());
  assert.deepEqual(picture, { width: WIDTH, height: HEIGHT, color: picture.color });
  assert.ok(sameColor(picture.color, color), `the picture is ${picture.color}, not ${color}`);
  const [task] = await until('the panel shows the picture', async () => {
    const tasks = await ui.panel.tasks();
    return tasks[0]?.picture && tasks;
  });
  assert.deepEqual(task, { ...task, state: 'done', picture });
  await until('nothing is active', async () => await ui.panel.active() === 0);

  const seen = await titles();
  const shown = await previews();
  assert.ok(seen.some((title) => title.includes(work)), `no title named ${work}: ${seen.join(' | ')}`);
  if (simulated) {
    const percents = new Set(seen.filter((title) => title.includes(work)).map((title) => title.match(/\[(\d+)%\] ?\S+$/)?.[1]));
    assert.ok(percents.size >= 4, `too little progress: ${seen.join(' | ')}`);
    assert.ok(shown >= 2, `${shown} previews`);
  }
  await until('the title is calm', async () => !/%/.test(await ui.title()));
  return `${new Set(seen).size} titles, ${shown} previews`;
}
