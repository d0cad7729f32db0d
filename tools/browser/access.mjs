// Uses ComfyUI's web UI through a hub that asks for API keys, as a person with a key does: the browser's own login, the
// socket behind it, and what the page says when a rule or a limit refuses a prompt. The hub needs `keys required`, a rule
// that forbids pictures wider than 512, and two keys: one that may post four prompts a minute, and one without limits.
//
//     COMFYHUB_KEY=... COMFYHUB_OTHER_KEY=... node tools/browser/access.mjs --hub http://127.0.0.1:8188
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { Chrome } from './lib/chrome.mjs';
import { randomColor } from './lib/color.mjs';
import { until } from './lib/wait.mjs';
import { paint } from './lib/workflow.mjs';

const { values: options } = parseArgs({
  options: {
    hub: { type: 'string', default: 'http://127.0.0.1:8188' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    shots: { type: 'string', default: 'artifacts/browser/access' },
  },
});
const { COMFYHUB_KEY: key, COMFYHUB_OTHER_KEY: other } = process.env;
assert.ok(key && other, 'COMFYHUB_KEY and COMFYHUB_OTHER_KEY are missing');

const stranger = await fetch(options.hub);
assert.equal(stranger.status, 401);
assert.match(stranger.headers.get('www-authenticate'), /Basic realm=/, 'no browser would ask for the key');

const chrome = await Chrome.start({ url: options.hub, executable: options.chromium, shots: options.shots });
chrome.watch.begin('access');
try {
  // What a browser sends once its user has typed the key into the dialog that a 401 opens.
  const ui = await chrome.visit({ httpCredentials: { username: 'me', password: key } });
  const shows = (pattern) => async () => pattern.test(await ui.page.locator('body').innerText());
  await chrome.shoot('logged-in');

  await ui.load('browser-access', paint({ simulated: true }));
  await ui.run(randomColor());
  await until('the node shows a picture, of which the socket has told', () => ui.picture());
  console.log('ok   a key opens the page, its socket and its pictures');

  const wide = paint({ simulated: true });
  wide.nodes[0].widgets_values[0] = 1024;
  await ui.load('browser-wide', wide);
  await assert.rejects(ui.run(randomColor()), /Run was answered with 400/);
  await until('the page shows the rule', shows(/1024 is more than you may use: 512 at most|The value 1024 for .* width is above the maximum 512/));
  await chrome.shoot('rule');
  console.log('ok   the page shows which rule refuses a prompt');
  await ui.closeDialogs();

  await ui.load('browser-rate', paint({ simulated: true }));
  let refusal;
  for (let n = 0; n < 10 && !refusal; n++) refusal = await ui.run(randomColor()).then(() => null, (error) => error);
  assert.match(refusal?.message ?? 'no prompt was refused', /Run was answered with 429/);
  const { error } = JSON.parse(refusal.message.replace(/^[^{]*/, ''));
  assert.equal(error.type, 'tenant_rate');
  await until('the page shows the limit', async () => (await ui.page.locator('body').innerText()).includes(error.message));
  await chrome.shoot('limit');
  console.log(`ok   the page shows the limit: ${error.message}`);

  const begin = Date.now();
  const post = await fetch(`${options.hub}/prompt`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${other}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({
      prompt: {
        1: { class_type: 'EmptyImage', inputs: { width: 64, height: 64, batch_size: 1, color: randomColor() } },
        2: { class_type: 'SaveImage', inputs: { images: ['1', 0], filename_prefix: 'other' } },
      },
    }),
  });
  assert.equal(post.status, 200, await post.clone().text());
  const { prompt_id: id } = await post.json();
  await until("the other's picture", async () => id in await (await fetch(`${options.hub}/history/${id}`, { headers: { Authorization: `Bearer ${other}` } })).json());
  console.log(`ok   somebody else's prompt runs meanwhile (${Date.now() - begin} ms)`);

  const page = await ui.page.context().newPage();
  await page.goto(`${options.hub}/hub/`);
  await page.waitForSelector('.connection.on');
  await chrome.shoot('dashboard');
  console.log('ok   the same login opens the dashboard');
} catch (failure) {
  await chrome.shoot('failed');
  throw failure;
} finally {
  await chrome.stop();
}
