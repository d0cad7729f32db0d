// A prompt whose node fails, and one that the server refuses: the page says what is wrong, and with which node.
import assert from 'node:assert/strict';
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'fail';

// The older web UI shows the exception, the newer one the node.
const FAILED = /simulated failure|Simulated Work failed|Padding size|Blur Image failed/;
const REFUSED = /Required input (is )?missing/;

export async function run({ chrome, simulated }) {
  const ui = await chrome.visit();
  const shows = (pattern) => async () => pattern.test(await ui.page.locator('body').innerText());

  const failing = paint({ seconds: 1, simulated });
  const [empty, work] = failing.nodes;
  if (simulated) work.widgets_values[2] = 'error';
  else empty.widgets_values.splice(0, 2, 8, 8); // smaller than the blur's reach
  await ui.load('browser-fail', failing);
  await ui.run(randomColor());
  await until('the page shows the failure', shows(FAILED));
  await until('nothing is active', async () => await ui.panel.active() === 0);
  await chrome.shoot('fail-failed-node');
  await until('the panel shows it as ended', async () => (await ui.panel.tasks())[0]?.state === 'ended');
  await ui.closeDialogs();

  const incomplete = paint({});
  incomplete.links.shift();
  incomplete.nodes[0].outputs[0].links = [];
  incomplete.nodes[1].inputs = [];
  await ui.load('browser-refused', incomplete);
  await assert.rejects(ui.run(randomColor()), /Run was answered with 400/);
  await until('the page tells what is missing', shows(REFUSED));
  return '';
}
