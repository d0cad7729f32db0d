#!/usr/bin/env node
// Uses ComfyUI's web UI in a real browser, through a hub, and compares it with a single ComfyUI. See README.md.
import path from 'node:path';
import { parseArgs } from 'node:util';
import { known } from './known.mjs';
import { Chrome } from './lib/chrome.mjs';
import * as cancel from './steps/cancel.mjs';
import * as fail from './steps/fail.mjs';
import * as hubpanel from './steps/hubpanel.mjs';
import * as open from './steps/open.mjs';
import * as others from './steps/others.mjs';
import * as panels from './steps/panels.mjs';
import * as parts from './steps/parts.mjs';
import * as people from './steps/people.mjs';
import * as queue from './steps/queue.mjs';
import * as reload from './steps/reload.mjs';
import * as runOne from './steps/run.mjs';
import * as save from './steps/save.mjs';
import * as upload from './steps/upload.mjs';

const steps = [open, runOne, parts, upload, queue, cancel, people, reload, others, fail, save, panels, hubpanel];

const usage = `usage: node run.mjs [--reference URL] [--hub URL] [--instances N] [--only WORD,...]

  --reference URL  a single ComfyUI; BROWSER_REFERENCE
  --hub URL        the hub; BROWSER_HUB
  --instances N    how many instances are behind the hub (1); BROWSER_INSTANCES
  --only WORD,...  only these steps: ${steps.map(({ name }) => name).join(', ')}
  --chromium FILE  the browser (/usr/bin/chromium); BROWSER_CHROMIUM
  --shots FOLDER   where the screenshots and the consoles' logs go (artifacts/browser)`;

const limit = 300_000; // ms for one step
const env = process.env;
const { values: options } = parseArgs({
  options: {
    reference: { type: 'string', default: env.BROWSER_REFERENCE },
    hub: { type: 'string', default: env.BROWSER_HUB },
    instances: { type: 'string', default: env.BROWSER_INSTANCES ?? '1' },
    only: { type: 'string', default: '' },
    chromium: { type: 'string', default: env.BROWSER_CHROMIUM ?? '/usr/bin/chromium' },
    shots: { type: 'string', default: path.resolve(import.meta.dirname, '..', '..', 'artifacts', 'browser') },
    help: { type: 'boolean' },
  },
});

process.exitCode = await main();

async function main() {
  const words = options.only.split(',').filter(Boolean);
  const chosen = steps.filter(({ name }) => !words.length || words.includes(name));
  if (options.help || !chosen.length || !(options.hub || options.reference)) {
    console.log(usage);
    return options.help ? 0 : 2;
  }
  const harmless = new Set();
  let failed = 0;
  for (const server of ['reference', 'hub']) {
    const url = options[server]?.replace(/\/+$/, '');
    if (!url) continue;
    const troubles = await visit(server, url, chosen, () => failed++);
    for (const [line, full] of troubles) {
      if (known.some((pattern) => pattern.test(line))) continue;
      if (server === 'reference') {
        harmless.add(line);
        console.log(`note reference  a trouble of its own: ${full.slice(0, 200)}`);
      } else if (!harmless.has(line)) {
        failed++;
        console.log(`FAIL hub        only through the hub: ${full.slice(0, 500)}`);
      }
    }
  }
  console.log(failed ? `${failed} failed` : 'all passed');
  return failed ? 1 : 0;
}

/** Runs every step against one server, and returns the troubles that the pages had. */
async function visit(server, url, chosen, count) {
  const chrome = await Chrome.start({ url, executable: options.chromium, shots: path.join(options.shots, server) });
  const simulated = 'SimulatedWork' in await (await fetch(`${url}/object_info/SimulatedWork`)).json();
  const context = { chrome, url, simulated, hub: server === 'hub', instances: server === 'hub' ? Number(options.instances) : 1 };
  try {
    for (const { name, run } of chosen) {
      const begin = Date.now();
      chrome.watch.begin(name);
      let line = `ok   ${server.padEnd(9)}  ${name}`;
      let clock;
      const late = new Promise((_, reject) => { clock = setTimeout(() => reject(new Error(`not within ${limit / 1000} s`)), limit); });
      try {
        const note = await Promise.race([run(context), late]);
        await chrome.shoot(name);
        if (note) line += `: ${note}`;
      } catch (error) {
        count();
        await chrome.shoot(`${name}-failed`);
        const seen = (await chrome.seen()).map((page) => `\n    the page showed: ${page}`);
        line = `FAIL ${server.padEnd(9)}  ${name}: ${error.stack}${seen.join('')}`;
      } finally {
        clearTimeout(clock);
        await chrome.leave();
        await idle(url);
      }
      console.log(`${line} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
    }
  } finally {
    await chrome.stop();
  }
  return chrome.watch.troubles;
}

/** Ends what a failed step has left in the queue. */
async function idle(url) {
  const deadline = Date.now() + 30_000;
  while (Date.now() < deadline) {
    const { queue_running: running, queue_pending: pending } = await (await fetch(`${url}/queue`)).json();
    if (!running.length && !pending.length) return;
    await fetch(`${url}/queue`, { method: 'POST', body: JSON.stringify({ clear: true }) });
    for (const [, id] of running) await fetch(`${url}/interrupt`, { method: 'POST', body: JSON.stringify({ prompt_id: id }) });
    await new Promise((resolve) => { setTimeout(resolve, 200); });
  }
}
