// The hub's own panel: a place and a time for each job, the GPU that runs it, a link to its page; and a line in the page's
// list of jobs, where that names them.
import assert from 'node:assert/strict';
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'hubpanel';

export async function run({ chrome, simulated, instances, hub, url }) {
  if (!hub) return 'only a hub has it';
  const ui = await chrome.visit();
  await ui.load('browser-hubpanel', paint({ seconds: simulated ? 600 : 60, simulated })); // what is left is thrown away
  const ids = [];
  for (let n = 0; n < instances + 1; n++) ids.push(await ui.run(randomColor()));
  const last = ids.at(-1);
  const named = ui.page.locator(`[data-job-id="${last}"]`);
  await ui.panel.tasks(); // opens it
  if (await named.count()) await named.locator('.comfyhub-line').getByText('Place 1').waitFor();
  await chrome.shoot('hubpanel-list');

  await ui.page.locator('.comfyhub-tab-button').click();
  const panel = ui.page.locator('.comfyhub-panel');
  await panel.getByText(`Running: ${instances}`).waitFor();
  await panel.getByText('Place 1').waitFor();
  await panel.getByText('Simulated GPU').or(panel.getByText('·')).first().waitFor();
  const link = panel.locator(`a[href$="${encodeURIComponent(last)}"]`);
  assert.equal(await link.getAttribute('href'), `${url}/hub/#job/${encodeURIComponent(last)}`);
  await chrome.shoot('hubpanel');
  const opened = ui.page.context().waitForEvent('page');
  await link.click();
  const page = await opened;
  await page.locator('.jobhead', { hasText: last }).waitFor();
  await page.close();
  await until('it says why it waits', async () => /idle|waits/.test(await panel.innerText()));
  return `${ids.length} jobs`;
}
