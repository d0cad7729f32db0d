// Two people behind one address have the same browser and nobody is logged in: when one clears, interrupts or cancels
// everything, the other's jobs stay.
import assert from 'node:assert/strict';
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'people';

export async function run({ chrome, simulated, instances, url, hub }) {
  if (!hub || instances < 2) return 'only a hub with two instances knows two people';
  const get = async (path) => (await fetch(url + path)).json();
  const listed = async () => {
    const { queue_running: running, queue_pending: pending } = await get('/queue');
    return { running: running.map(([, id]) => id), pending: pending.map(([, id]) => id) };
  };
  const people = [await chrome.visit(), await chrome.visit()];
  const [ann, bob] = people;
  for (const ui of people) await ui.load('browser-people', paint({ seconds: simulated ? 600 : 60, simulated }));
  const runs = { ann: await ann.run(randomColor()), bob: await bob.run(randomColor()) };
  for (let n = 2; n < instances; n++) await ann.run(randomColor());
  await until('all run', async () => (await listed()).running.length === instances);
  const waits = { ann: await ann.run(randomColor()), bob: await bob.run(randomColor()) };
  await until('both wait', async () => (await listed()).pending.length === 2);

  await bob.page.evaluate(() => window.app.api.clearItems('queue'));
  assert.deepEqual((await listed()).pending, [waits.ann], 'what waits after the other cleared the queue');

  const all = (await listed()).running;
  await bob.page.evaluate(async (ids) => {
    const { api } = window.app;
    if (api.cancelJobs) await api.cancelJobs(ids); // "Interrupt all running jobs"; older UIs have no such button
    else await api.interrupt(null);
  }, all);
  const over = async (id) => (await get(`/history/${id}`))[id];
  await until('his own has ended', () => over(runs.bob));
  await bob.page.evaluate(() => window.app.api.interrupt(null)); // Bob has nothing left to interrupt
  await ann.page.evaluate((id) => window.app.api.interrupt(id), runs.ann);
  await until('hers has ended', () => over(runs.ann));
  await bob.page.evaluate(() => window.app.api.clearItems('history'));
  assert.equal(await over(runs.bob), undefined, 'his history after he cleared it');
  assert.ok(await over(runs.ann), 'her history after the other cleared his');
  await until('what waited of hers runs', async () => (await listed()).running.includes(waits.ann));
  assert.equal((await listed()).running.length, instances - 1, 'all others of hers go on');

  await ann.page.evaluate(() => window.app.api.clearItems('queue'));
  for (const id of (await listed()).running) await ann.page.evaluate((one) => window.app.api.interrupt(one), id);
  await until('nothing runs', async () => (await listed()).running.length === 0);
  return 'two people, each with their own';
}
