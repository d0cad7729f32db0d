// Every panel opens, in both menus, and the log panel has the lines of all servers. What the pages cause on the way (errors on the
// console, answers of 400 and above) fails the run, as in every step.
import assert from 'node:assert/strict';
import { until } from '../lib/wait.mjs';

export const name = 'panels';

export async function run({ chrome, instances }) {
  const ui = await chrome.visit();
  const { page } = ui;
  const tabs = await page.evaluate(() => window.app.extensionManager.sidebarTab.sidebarTabs.map(({ id }) => id));
  assert.ok(tabs.includes('node-library') && tabs.includes('workflows'), `the side bar has ${tabs}`);
  for (const id of tabs) {
    await show(page, id, true);
    await until(`the side bar shows ${id}`, () => page.evaluate((tab) => window.app.extensionManager.sidebarTab.activeSidebarTabId === tab, id));
    await page.waitForTimeout(500);
    await chrome.shoot(`panels-${id}`);
    await show(page, id, false);
  }
  await toggleLogs(page);
  await until('the log panel has lines', async () => (await log(page)).length > 0);
  if (instances > 1) {
    await until('the log panel names the servers', async () => /\[[^\]\s]+\] \S/.test(await log(page)));
  }
  await chrome.shoot('panels-logs');
  await toggleLogs(page); // it would cover the old menu
  await page.evaluate(() => window.app.extensionManager.setting.set('Comfy.UseNewMenu', 'Disabled'));
  for (const button of ['#comfy-view-queue-button', '#comfy-view-history-button']) {
    await page.locator(button).click();
    await page.waitForTimeout(500);
  }
  await page.evaluate(() => window.app.extensionManager.setting.set('Comfy.UseNewMenu', 'Top'));
  return `${tabs.length} tabs`;
}

const toggleLogs = (page) => page.evaluate(() => window.app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.logs-terminal'));

/** Opens or closes a tab of the side bar; which one is open at first differs from version to version. */
const show = (page, id, open) => page.evaluate(([tab, wanted]) => {
  const bar = window.app.extensionManager.sidebarTab;
  if ((bar.activeSidebarTabId === tab) !== wanted) bar.toggleSidebarTab(tab);
}, [id, open]);

/** What the terminal of the log panel shows. */
async function log(page) {
  return (await page.locator('.xterm-rows').allInnerTexts()).join('\n').trim();
}
