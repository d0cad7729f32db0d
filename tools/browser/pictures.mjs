// Takes the pictures of the dashboard that docs/pictures has. The hub needs idle simulated
// instances that send previews, `operators default`, and a site for operators:
//
//     for machine in "atlas 4 24GiB" "borea 3 48GiB" "cirrus 2 80GiB"; do
//       set -- $machine
//       bin/agent run --join 127.0.0.1:7946 --name "$1" --simulate "$2" --vram "$3" --preview-method auto --step-time 400ms &
//     done
//     node tools/browser/pictures.mjs --hub http://127.0.0.1:8188 --operators http://127.0.0.1:8187
//
// cwebp and img2webp (Debian's package webp) make them small.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';

const { values: options } = parseArgs({
  options: {
    hub: { type: 'string', default: 'http://127.0.0.1:8188' },
    operators: { type: 'string', default: 'http://127.0.0.1:8187' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    to: { type: 'string', default: new URL('../../docs/pictures', import.meta.url).pathname },
  },
});
const checkpoints = ['v1-5-pruned-emaonly-fp16.safetensors', 'sd_xl_base_1.0.safetensors'];

/** Posts a picture of some user's. */
async function post(n, steps) {
  const answer = await fetch(`${options.hub}/prompt`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({
      client_id: ['ada', 'bob', 'studio'][n % 3], prompt: {
        4: { class_type: 'CheckpointLoaderSimple', inputs: { ckpt_name: checkpoints[n % 2] } },
        5: { class_type: 'EmptyLatentImage', inputs: { width: 512, height: 512, batch_size: 1 } },
        6: { class_type: 'CLIPTextEncode', inputs: { text: `a valley in the morning, ${n}`, clip: ['4', 1] } },
        7: { class_type: 'CLIPTextEncode', inputs: { text: 'text, watermark', clip: ['4', 1] } },
        3: { class_type: 'KSampler', inputs: { seed: n, steps, cfg: 7, sampler_name: 'euler', scheduler: 'normal', denoise: 1, model: ['4', 0], positive: ['6', 0], negative: ['7', 0], latent_image: ['5', 0] } },
        8: { class_type: 'VAEDecode', inputs: { samples: ['3', 0], vae: ['4', 2] } },
        9: { class_type: 'SaveImage', inputs: { filename_prefix: 'ComfyUI', images: ['8', 0] } },
      },
    }),
  });
  if (answer.status !== 200) throw new Error(await answer.text());
}

const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const folder = mkdtempSync(path.join(os.tmpdir(), 'pictures-'));
const page = async (site, tab, more = {}) => {
  const context = await browser.newContext({ viewport: { width: 1440, height: 840 }, locale: 'en-US', colorScheme: 'light', ...more });
  const opened = await context.newPage();
  await opened.goto(`${site}/hub/#${tab}`);
  await opened.waitForSelector('.connection.on');
  return opened;
};
const shoot = async (from, name) => {
  const png = path.join(folder, `${name}.png`);
  await from.screenshot({ path: png });
  execFileSync('cwebp', ['-quiet', '-q', '82', png, '-o', path.join(options.to, `${name}.webp`)]);
  await from.context().close();
};

try {
  const fleet = await page(options.operators, 'fleet');
  const instances = await fleet.locator('.fleet .row:not(.head) .name').allInnerTexts();
  // Results first, then runs that can be seen, of different lengths, and some that wait.
  for (let n = 0; n < 3 * instances.length; n++) await post(n, 4);
  await fleet.waitForFunction(() => document.querySelector('#summary .cell:nth-child(2) .value').textContent === '0', null, { timeout: 300_000 });
  for (let n = 0; n < instances.length + 7; n++) await post(100 + n, 60 + 7 * (n % 9));
  // A film of 20 seconds.
  const film = await page(options.operators, 'fleet', { viewport: { width: 1120, height: 640 } });
  const frames = [];
  for (let n = 0; n < 20; n++) {
    frames.push(path.join(folder, `film-${n}.png`));
    await film.screenshot({ path: frames[n] });
    await pause(1000);
  }
  execFileSync('img2webp', ['-loop', '0', '-lossy', '-q', '60', '-m', '6', '-d', '1000', ...frames, '-o', path.join(options.to, 'film.webp')]);
  await film.context().close();
  await shoot(fleet, 'fleet');

  const instance = await page(options.operators, 'fleet', { colorScheme: 'dark' });
  await instance.locator('.fleet .row:not(.head)', { hasText: 'KSampler' }).first().click();
  await instance.waitForFunction(() => document.querySelector('#panel img')?.naturalWidth > 0, null, { timeout: 60_000 });
  await shoot(instance, 'instance');

  await shoot(await page(options.operators, 'fleet', { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, locale: 'ru-RU', colorScheme: 'dark' }), 'phone');

  const results = await page(options.hub, 'results', { viewport: { width: 1440, height: 900 } });
  await results.waitForFunction(() => [...document.querySelectorAll('.results img')].length > 8 && [...document.querySelectorAll('.results img')].every((image) => image.complete));
  await shoot(results, 'results');
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
