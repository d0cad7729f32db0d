// Jobs that do not belong to this tab: somebody else's, and one of a tab that was closed during the run and opened again.
// The panel shows them as active while they wait or run, and not after they have ended.
import { randomColor } from '../lib/color.mjs';
import { until } from '../lib/wait.mjs';
import { paint } from '../lib/workflow.mjs';

export const name = 'others';

export async function run({ chrome, simulated }) {
  const [mine, other] = [await chrome.visit(), await chrome.visit()];
  const seconds = Math.ceil(4 + other.slowness);
  await other.load('browser-others', paint({ seconds, simulated }));
  await other.run(randomColor());
  await until("somebody else's job is active", () => active(mine));
  await chrome.shoot('others-running');
  await until("somebody else's job has ended", async () => !await active(mine));

  // The tab is closed while its job runs. Then another tab is opened, with another client id.
  await other.load('browser-closed', paint({ seconds: Math.ceil(4 + 2 * other.slowness), simulated }));
  await other.run(randomColor());
  await until('it runs', async () => /%/.test(await other.title()));
  const again = await chrome.reopen(other);
  await until('the job of the closed tab is active', () => active(again));
  await until('the job of the closed tab has ended', async () => !await active(again));
  await until('the panel shows it as done', async () => (await again.panel.tasks())[0]?.state === 'done');
  await until('the others see it, too', async () => !await active(mine) && (await mine.panel.tasks())[0]?.state === 'done');
}

// Web UI 1.27 counts only its own jobs beside the button, so the panel is checked as well.
const active = async (ui) => await ui.panel.active() > 0 || (await ui.panel.tasks()).some(({ state }) => state === 'running' || state === 'pending');
