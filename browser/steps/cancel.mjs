// One that waits is taken out of the panel; the running one is interrupted with the cross beside Run; the rest is done.
import assert from 'node:assert/strict';
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'cancel';

export async function run({ chrome, simulated, instances, url }) {
  const ui = await chrome.visit();
  await ui.load('browser-cancel', paint({ seconds: 12, simulated }));
  const ids = [];
  for (let n = 0; n < instances + 1; n++) ids.push(await ui.run(randomColor()));
  await until('all but the last run', async () => {
    const states = (await ui.panel.tasks()).map(({ state }) => state);
    return states.filter((state) => state === 'running').length === instances && states.includes('pending');
  });

  await ui.panel.cancelPending();
  await until('the waiting one is gone', async () => (await ui.panel.tasks()).every(({ state }) => state !== 'pending'));
  assert.equal(await ui.panel.active(), instances);

  await ui.interrupt();
  await until('the interrupted one has ended', async () => (await ui.panel.tasks()).some(({ state }, n) => state === 'ended' && n < ids.length));
  await chrome.shoot('cancel-interrupted');
  await until('nothing is active', async () => await ui.panel.active() === 0);

  const ends = await Promise.all(ids.map(async (id) => (await (await fetch(`${url}/history/${id}`)).json())[id]?.status));
  const interrupted = ends.filter((status) => status?.messages.some(([event]) => event === 'execution_interrupted'));
  assert.equal(ends.at(-1), undefined, 'the one that waited has run');
  assert.equal(interrupted.length, 1, 'one click interrupts one job');
  assert.equal(ends.filter((status) => status?.status_str === 'success').length, instances - 1, 'the others are done');
  return `1 of ${instances} interrupted`;
}
