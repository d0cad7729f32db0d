// Shows that the hub's dashboard can stay open: what it holds in memory does not grow however
// much the fleet does. The hub needs a simulated instance and `operators default`. In the page
// each change comes from here, faster than a hub sends them: a row of the hub's own snapshot is
// made into many, so that they have its members.
//
//     node tools/browser/flat.mjs --hub http://127.0.0.1:8188 --changes 1200 --rounds 3
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';

const { values: options } = parseArgs({
  options: {
    hub: { type: 'string', default: 'http://127.0.0.1:8188' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    shots: { type: 'string', default: 'artifacts/browser/flat' },
    instances: { type: 'string', default: '500' },
    jobs: { type: 'string', default: '10000' },
    changes: { type: 'string', default: '200' }, // in a round
    rounds: { type: 'string', default: '2' }, // after the first
  },
});
const [instances, jobs, changes, rounds] = ['instances', 'jobs', 'changes', 'rounds'].map((name) => Number(options[name]));
mkdirSync(options.shots, { recursive: true });

/** Runs in the page before its own scripts: an EventSource whose changes are made up. */
function invent({ count, waiting }) {
  const states = ['busy', 'busy', 'busy', 'busy', 'idle', 'foreign', 'draining', 'sick', 'offline'];
  const shown = Math.min(200, waiting); // as many waiting jobs as a hub shows
  const real = window.EventSource;
  let made = 0;
  const [create, revoke] = [URL.createObjectURL, URL.revokeObjectURL];
  const pictures = window.comfyhubPictures = new Set(); // that are in memory
  URL.createObjectURL = (blob) => {
    const url = create.call(URL, blob);
    pictures.add(url);
    return url;
  };
  URL.revokeObjectURL = (url) => {
    pictures.delete(url);
    revoke.call(URL, url);
  };
  const job = () => {
    const n = made++;
    return {
      key: `key-${n}`, id: `job-${n}`, tenant: `tenant ${n % 20}`, order: String(n).padStart(12, '0'), position: n, eta: Date.now() + n % 3600e3, why: n % 3 ? '' : `waits for ${n % 7} servers`,
      priority: n % 50 ? 0 : 5, band: ['normal', 'bulk', 'interactive'][n % 3], paused: n % 40 === 0, attempts: n % 30 ? 0 : 1, created: Date.now() - 60e3,
    };
  };
  const work = (n) => ({ job: `job-${n}`, tenant: `tenant ${n % 20}`, key: `run-${n}`, began: Date.now(), node: String(n % 9), class: `Sampler${n % 5}`, progress: (n % 100) / 100 });
  window.EventSource = class extends EventTarget {
    constructor(address) {
      super();
      this.readyState = 1;
      const source = new real(address);
      source.addEventListener('hello', (event) => this.tell('hello', JSON.parse(event.data)));
      source.addEventListener('snapshot', (event) => {
        source.close();
        const [row] = JSON.parse(event.data).instances;
        this.rows = Array.from({ length: count }, (_, n) => ({
          ...row, name: `gpu-${n}`, state: states[n % states.length], url: `http://10.0.${n >> 8}.${n & 255}:8188`, vram_total: 24 * 2 ** 30, vram_free: (n % 24) * 2 ** 30,
          ...(n % 9 < 4 ? work(made++) : {}),
          ...(n % 10 === 4 ? { others_memory: (1 + n % 5) * 2 ** 30, others_use: 17 } : {}),
          ...(n % 9 === 7 ? { reason: 'it has been silent for 300 s', restarts: 1 + n % 4, restart_at: Date.now() + 240e3, restart_error: 'exit status 1', fault: 'CUDA error: an illegal memory access was encountered', fault_at: Date.now() } : {}),
          disk_size: 500 * 1e9, ...(n === 3 ? {} : { disk_free: (1 + n % 400) * 1e9 }), // none at all is left out, as by the hub
        }));
        this.jobs = Array.from({ length: shown }, job);
        this.tell('snapshot', { instances: this.rows, jobs: this.jobs, counts: this.counts() });
        window.comfyhubSource = this;
      });
    }

    counts() { return { waiting, running: Math.floor(count * 4 / 9), own_waiting: waiting, own_running: 0, paused: false, tenant_paused: false }; }

    tell(type, value) { this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(value) })); }

    /** Half of the instances go on, some begin another job, some come and go, and the queue moves. */
    change(n) {
      const rows = this.rows.filter((_, at) => (at + n) % 2 === 0).map(({ name }, at) => ({
        name, progress: Math.random(), vram_free: Math.random() * 24 * 2 ** 30,
        ...((at + n) % 7 === 0 ? work(made++) : {}), ...((at + n) % 31 === 0 && name !== 'gpu-3' ? { fault: `fault ${made}`, fault_at: Date.now(), restarts: n, restart_error: n % 2 ? `exit status ${n}` : '' } : {}),
      }));
      const gone = this.jobs.splice(0, 25);
      const fresh = Array.from({ length: 25 }, job);
      this.jobs.push(...fresh);
      const away = this.rows[n % this.rows.length];
      this.tell('change', { instances: rows, gone_jobs: gone.map(({ key }) => key), jobs: fresh, gone_instances: [away.name], counts: this.counts() });
      this.tell('change', { instances: [away] });
    }
  };
}

const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const faults = [];
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: 'en-US', colorScheme: 'light' });
  context.setDefaultTimeout(60_000);
  await context.addInitScript(invent, { count: instances, waiting: jobs });
  const page = await context.newPage();
  page.on('pageerror', (error) => faults.push(error.message));
  // A preview takes a moment, in which its panel may be closed.
  await page.route('**/hub/preview?*', async (route) => {
    await pause(20);
    await route.fulfill({ contentType: 'image/gif', body: Buffer.from('R0lGODlhAQABAIAAAP8AAAAAACwAAAAAAQABAAACAkQBADs=', 'base64') }).catch(() => {});
  });
  await page.goto(`${options.hub}/hub/#fleet`);
  await page.waitForFunction(() => window.comfyhubSource && document.querySelectorAll('.fleet .row:not(.head)').length > 5);
  const debug = await context.newCDPSession(page);
  await debug.send('HeapProfiler.enable');
  const shoot = (name) => page.screenshot({ path: path.join(options.shots, `${name}.png`) });
  await shoot('fleet');

  /** What the page holds after a garbage collection. */
  const held = async () => {
    await page.evaluate(() => { location.hash = 'fleet'; });
    await page.waitForSelector('#tab-fleet[aria-selected=true]');
    // A list draws some rows before it knows its height: half a page would be compared with a whole one.
    await page.waitForFunction(() => {
      const list = document.querySelector('.fleet .list, .fleet.list');
      const row = document.querySelector('.fleet .row:not(.head)');
      return list.clientHeight > 0 && row && document.querySelectorAll('.fleet .row:not(.head)').length * row.offsetHeight >= list.clientHeight;
    });
    for (let n = 0; n < 3; n++) await debug.send('HeapProfiler.collectGarbage');
    const { usedSize } = await debug.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await debug.send('Memory.getDOMCounters');
    return { heap: usedSize, nodes, listeners: jsEventListeners };
  };

  /** Goes through the page as somebody does who watches, while changes come. */
  const round = async (first) => {
    const tabs = ['fleet', 'queue', 'results', 'trends', 'faults'];
    for (let n = 0; n < changes; n += 20) {
      await page.evaluate((tab) => { location.hash = tab; }, tabs[n / 20 % tabs.length]);
      await page.evaluate(async ([from, count]) => {
        for (let i = 0; i < count; i++) {
          window.comfyhubSource.change(from + i);
          await new Promise((drawn) => { requestAnimationFrame(drawn); });
          const row = document.querySelectorAll('.row:not(.head)')[i % 5];
          if (i % 4 === 0) row?.click();
          if (i % 4 === 2) document.querySelector('#panel .title button')?.click();
        }
      }, [first + n, Math.min(20, changes - n)]);
    }
  };

  // What is made once is made in the first rounds: caches, rows, the views' modules. From then on
  // nothing may grow; one more at each change would be twice as many as this. Rows have some more
  // texts or fewer.
  const isFlat = (from, to) => to.nodes <= from.nodes + changes / 2 && to.listeners <= from.listeners + changes / 2;
  await round(0);
  const all = [await held()];
  for (let n = 1; n <= rounds || (n <= 3 * rounds && !isFlat(all.at(-2), all.at(-1))); n++) {
    await round(n * changes);
    all.push(await held());
  }
  all.forEach(({ heap, nodes, listeners }, n) => console.log(`after ${(n + 1) * changes} changes: heap ${(heap / 2 ** 20).toFixed(2)} MiB, ${nodes} nodes, ${listeners} listeners`));
  const [first, before, after] = [all[0], all.at(-2), all.at(-1)];
  assert.deepEqual(faults, []);
  assert.ok(isFlat(before, after), 'the document, or what it listens to, goes on growing');
  assert.ok(after.heap <= first.heap * 1.2 + 2 ** 20, 'the heap has grown');

  // The newer fields, for people to look at.
  const open = async (title, name) => {
    await page.locator('input[type=search]').fill(title);
    await page.locator('.fleet .row:not(.head)', { has: page.locator('.name', { hasText: new RegExp(`^${title}$`) }) }).click();
    await page.waitForSelector('#panel-title');
    await shoot(name);
  };
  for (const [title, name, says] of [['gpu-7', 'restarts', 'next one at'], ['gpu-4', 'others', 'other programs hold'], ['gpu-3', 'full-disk', '0 GB free of']]) {
    await open(title, name);
    const shown = await page.locator('#panel').innerText();
    assert.ok(shown.includes(says), `${name}: ${shown}`);
    assert.doesNotMatch(shown, /NaN|undefined/, name);
  }
  await page.locator('.fleet .row', { hasText: 'gpu-3' }).filter({ hasText: '0 GB left on its disk' }).first().waitFor();
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => window.comfyhubPictures.size === 0).catch(async () => {
    assert.equal(await page.evaluate(() => window.comfyhubPictures.size), 0, 'previews of panels that are closed');
  });
  console.log('ok    the page stays as it is');
} finally {
  await browser.close();
}
