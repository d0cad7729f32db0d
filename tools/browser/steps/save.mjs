// A second browser has a saved workflow, which opens unchanged, and a changed setting.
import assert from 'node:assert/strict';
import { until } from '../lib/wait.mjs';
import { fresh, paint } from '../lib/workflow.mjs';

export const name = 'save';

export async function run({ chrome, url }) {
  const file = fresh('browser');
  const ui = await chrome.visit();
  const workflow = paint({ prefix: file });
  await ui.load('browser-save', workflow);
  await ui.save(file);
  const address = `${url}/api/userdata/${encodeURIComponent(`workflows/${file}.json`)}`;
  const drawn = await ui.links();
  try {
    await until('the server has the file', async () => (await fetch(address)).ok);
    await ui.toggleLinks();
    await until('the links are toggled', async () => await ui.links() !== drawn);
    const other = await chrome.visit();
    await until('the other browser knows the setting', async () => await other.links() !== drawn);
    await other.toggleLinks();
    await other.openSaved(file);
    const types = workflow.nodes.map(({ type }) => type);
    await until('the other browser shows the workflow', async () => (await other.nodes()).join() === types.join());
    await chrome.shoot('save-found');
    const prefix = await other.page.evaluate(() => window.app.graph.nodes.find(({ type }) => type === 'SaveImage').widgets[0].value);
    assert.equal(prefix, file);
  } finally {
    await fetch(address, { method: 'DELETE' });
  }
  return '';
}
