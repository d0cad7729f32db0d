// A waiting job is taken out of the panel; the cross beside Run interrupts one running job and no other.
import assert from 'node:assert/strict';
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'cancel';

export async function run({ chrome, simulated, instances, url }) {
  const ui = await chrome.visit();
  await ui.load('browser-cancel', paint({ seconds: simulated ? 600 : 60, simulated })); // what is left is thrown away
  const ids = [];
  for (let n = 0; n < instances + 1; n++) ids.push(await ui.run(randomColor()));
  const waiting = ids.pop();
  await until('all but the last run', async () => {
    const states = (await ui.panel.tasks()).map(({ state }) => state);
    return states.filter((state) => state === 'running').length === instances && states.includes('pending');
  });

  await ui.panel.cancelPending();
  await until('the waiting one is gone', async () => (await ui.panel.tasks()).every(({ state }) => state !== 'pending'));
  await until('the others are active', async () => await ui.panel.active() === instances);

  await ui.interrupt();
  await until('the interrupted one has ended', async () => (await ui.panel.tasks()).slice(0, instances).some(({ state }) => state === 'ended'));
  await until('one less is active', async () => await ui.panel.active() === instances - 1);
  await chrome.shoot('cancel-interrupted');

  const { queue_running: running, queue_pending: pending } = await (await fetch(`${url}/queue`)).json();
  assert.deepEqual(pending, []);
  assert.equal(running.filter(([, id]) => ids.includes(id)).length, instances - 1, 'one click interrupts one job');
  const history = await (await fetch(`${url}/history`)).json();
  assert.equal(history[waiting], undefined, 'the one that waited has run');
  const [ended] = ids.filter((id) => history[id]);
  assert.ok(history[ended].status.messages.some(([event]) => event === 'execution_interrupted'), 'it was not interrupted');
  return `1 of ${instances} interrupted`;
}
