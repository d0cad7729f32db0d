// Jobs that are not this tab's: of somebody else, and of a tab that was closed in mid-run and opened again. They are
// counted as active while they wait or run, and are not when they have ended.
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'others';

export async function run({ chrome, simulated }) {
  const [mine, other] = [await chrome.visit(), await chrome.visit()];
  const seconds = Math.ceil(4 + other.slowness);
  await other.load('browser-others', paint({ seconds, simulated }));
  await other.run(randomColor());
  await until("somebody else's job is active", async () => await mine.panel.active() === 1);
  await chrome.shoot('others-running');
  await until("somebody else's job has ended", async () => await mine.panel.active() === 0);

  // The tab is closed while its job runs. What is opened then is another tab, with another client id.
  await other.load('browser-closed', paint({ seconds: Math.ceil(4 + 2 * other.slowness), simulated }));
  await other.run(randomColor());
  await until('it runs', async () => /%/.test(await other.title()));
  const again = await chrome.reopen(other);
  await until('the job of the closed tab is active', async () => await again.panel.active() === 1);
  await until('the job of the closed tab has ended', async () => await again.panel.active() === 0);
  await until('the panel shows it as done', async () => (await again.panel.tasks())[0]?.state === 'done');
  await until('the others see it, too', async () => await mine.panel.active() === 0 && (await mine.panel.tasks())[0]?.state === 'done');
}
