// The tab is reloaded while its job runs: the new page shows it running, and then its picture.
import assert from 'node:assert/strict';
import { randomColor, sameColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'reload';

export async function run({ chrome, simulated }) {
  const ui = await chrome.visit();
  // Long enough for the page to be loaded again.
  await ui.load('browser-reload', paint({ seconds: Math.ceil(8 + 2 * ui.slowness), simulated }));
  const color = randomColor();
  await ui.run(color);
  const before = await until('the title names a node', () => progress(ui));
  await ui.reload();
  await ui.panel.open();
  await until('the panel shows the job as running', async () => (await ui.panel.tasks())[0]?.state === 'running');
  const after = await until('the title names a node again', () => progress(ui));
  await chrome.shoot('reload-running');

  const picture = await until('the node shows a picture', () => ui.picture());
  assert.ok(sameColor(picture.color, color), `the picture is ${picture.color}, not ${color}`);
  await until('the panel shows the job as done', async () => (await ui.panel.tasks())[0]?.state === 'done');
  await until('the title is calm', async () => !/%/.test(await ui.title()));
  return `${before} -> ${after}`;
}

const progress = async (ui) => (await ui.title()).match(/\[\d+%\] ?[A-Z]\w+$/)?.[0];
