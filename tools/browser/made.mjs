// Opens what users, nodes, workers and machines made in Chromium, logged in as somebody who may do everything: files whose
// script pauses the fleet, of every type, at every route that gives such bytes. None may run. The hub needs `keys required`,
// and an instance "evil" at --evil, which this script plays in front of the honest server at --server.
//
//     COMFYHUB_KEY=... COMFYHUB_WORKER_TOKEN=... node tools/browser/made.mjs --hub http://127.0.0.1:8188 --evil 9000 --server http://127.0.0.1:3188
//
// Without --all, only some types of each kind.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import { FLAGS } from './lib/chrome.mjs';
import { evil, hostile } from './lib/hostile.mjs';
import { PATIENCE, until } from './lib/wait.mjs';

const { values: options } = parseArgs({
  options: {
    hub: { type: 'string', default: 'http://127.0.0.1:8188' },
    evil: { type: 'string' },
    server: { type: 'string' },
    all: { type: 'boolean', default: false },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    shots: { type: 'string', default: 'artifacts/browser/made' },
  },
});
const { hub } = options;
const { COMFYHUB_KEY: key, COMFYHUB_WORKER_TOKEN: token } = process.env;
assert.ok(key && token && options.evil && options.server, 'COMFYHUB_KEY, COMFYHUB_WORKER_TOKEN, --evil or --server is missing');
mkdirSync(options.shots, { recursive: true });

/** The endings that Python's mimetypes knows, with their types. */
const types = new Map(
  readFileSync(path.resolve(import.meta.dirname, '../../internal/hub/testdata/mimetypes.txt'), 'utf8').trim().split('\n').map((line) => line.trim().split(' ')),
);
assert.ok(types.size > 1000);
// Some that Chromium runs when a server takes no care, and one of each other kind.
const few = ['.html', '.xhtml', '.svg', '.svgz', '.xml', '.xsl', '.rdf', '.js', '.txt', '.pdf', '.mht', '.png', '.bin'];
// With --all one of each type; vendors' types differ in their names alone.
const families = new Map([...types].map(([ending, type]) => [type.replace(/\/vnd\.[^+]*/, '/vnd'), ending]));
const endings = new Set(['', '.unknown', ...few, ...(options.all ? families.values() : [])]);

const machine = await hostile(Number(options.evil), options.server, types);
const browser = await chromium.launch({ executablePath: options.chromium, timeout: PATIENCE, args: FLAGS });
try {
  const user = call({ Authorization: `Bearer ${key}` });
  const worker = call({ Authorization: `Bearer ${token}` });
  await until('the evil instance is idle', async () => {
    const instances = await (await user('GET', '/hub/instances')).json();
    return Array.isArray(instances) && instances.some(({ name, state }) => name.includes(options.evil) && state === 'idle');
  });

  const us = await visitor();
  const { ran, context } = us;
  // Where scripts run, this test sees it, and the browser sends its login along.
  const extension = await context.newPage();
  await until('the page of an extension runs, and is refused', async () => {
    // It is a download until the hub has chosen the instance of which it shows the web UI.
    if (!ran.size) await extension.goto(`${hub}/extensions/evil/page.html`).catch(() => {});
    return [...ran.values()].join() === '403';
  }, 20_000);
  ran.clear();
  await openAll([...endings].map((ending) => `${machine.url}/evil${ending}`), us);
  const active = ran.size;
  assert.ok(active >= 5, `at a server that takes no care, ${active} types run`);
  console.log(`ok   ${active} of ${endings.size} types run at a server that takes no care`);
  ran.clear();

  const addresses = [];
  for (const ending of endings) {
    const name = await upload(user, `evil${ending}`);
    const escaped = encodeURIComponent(name);
    await user('POST', `/userdata/${escaped}?overwrite=true`, evil);
    await user('PUT', `/api/etn/image/${escaped}`, evil);
    const link = await (await user('POST', '/hub/files', JSON.stringify({ filename: name, type: 'input' }))).json();
    const view = `view?type=input&filename=${escaped}`;
    addresses.push(
      `/${view}`, `/api/${view}`, `/${view}&preview=webp;90`, `/${view}&channel=rgb`, `/userdata/${escaped}`, `/api/userdata/${escaped}`,
      `/api/etn/image/${escaped}`, new URL(link.url, hub).href, `/pack/${escaped}`, `/api/pack/${escaped}`, `/view_metadata/x?filename=${escaped}`,
      `/api/workflow_templates/pack/${escaped}`, `/experiment/models/preview/x/0/${escaped}`,
    );
  }
  for (const ending of ['.svg', '.html']) await work(user, worker, [ending]); // cards of the dashboard
  const { id, job } = await work(user, worker, [...endings].filter((ending) => /^\.[a-z0-9]{1,8}$/i.test(ending)));
  for (const { filename, subfolder, type } of job) {
    addresses.push(`/view?${new URLSearchParams({ filename, subfolder, type })}`);
  }
  // What is JSON or text has their words in it.
  await user('POST', '/settings/evil', JSON.stringify(evil));
  addresses.push(
    '/settings', '/settings/evil', '/history', `/history/${id}`, '/api/jobs', `/api/jobs/${id}`, '/hub/jobs', `/hub/jobs/${id}`, `/hub/v1/status/${id}`,
    `/hub/v1/wait/${id}`, '/hub/instances', '/hub/faults', '/internal/logs', '/internal/logs/raw', '/internal/files/output', '/internal/files/input',
    '/userdata?dir=.', '/v2/userdata?path=', `/hub/${evil}`, `/${evil}`, `/object_info/${evil}`, `/view?filename=${evil}`, '/queue',
  );

  const shown = await openAll(addresses, us);
  assert.deepEqual([...ran.keys()], [], 'these ran in Chromium');
  assert.ok(shown > endings.size, `only ${shown} addresses were shown at all`);
  console.log(`ok   of ${addresses.length} addresses Chromium shows ${shown}, refuses or saves the others, and runs none`);

  const dashboard = await context.newPage();
  await dashboard.goto(`${hub}/hub/#results`);
  await dashboard.locator('.card').first().waitFor();
  await dashboard.screenshot({ path: path.join(options.shots, 'results.png') });
  const links = await dashboard.locator('.card a.picture').evaluateAll((all) => all.map((link) => link.href));
  assert.ok(links.length > 0, 'the dashboard shows files'); // of some types it shows no preview, and so no link
  await openAll(links, us);
  assert.deepEqual([...ran.keys()], [], 'these ran when opened from the dashboard');
  console.log(`ok   ${links.length} files opened from the dashboard`);
  const { paused } = await (await user('GET', '/hub/stats')).json();
  assert.ok(!paused, 'the fleet is paused');
} finally {
  await browser.close();
  machine.close();
}

/** Requests with these headers. */
function call(headers) {
  return async (method, address, body) => {
    const answer = await fetch(new URL(address, hub), { method, headers, body });
    if (!answer.ok) throw new Error(`${method} ${address}: ${answer.status} ${await answer.text()}`);
    return answer;
  };
}

/** Somebody who is logged in. `ran` gets every page that calls /hub/pause, with the answer. */
async function visitor() {
  const ran = new Map();
  const context = await browser.newContext({ httpCredentials: { username: 'me', password: key, origin: hub }, acceptDownloads: false });
  context.setDefaultTimeout(PATIENCE);
  const called = (address, status) => {
    const { pathname, searchParams } = new URL(address);
    if (pathname === '/hub/pause') ran.set(searchParams.get('ran') ?? address, status);
  };
  context.on('request', (request) => called(request.url(), 0));
  context.on('response', (response) => called(response.url(), response.status()));
  return { ran, context };
}

/** Opens addresses, several at a time, and says how many of them were shown. */
async function openAll(addresses, { ran, context }) {
  let shown = 0;
  const rest = addresses.values();
  await Promise.all(Array.from({ length: 3 }, async () => {
    let page = await context.newPage();
    for (const address of rest) {
      try {
        await page.goto(new URL(address, hub).href, { waitUntil: 'load' });
        if (await page.evaluate(() => document.documentElement.hasAttribute('ran'))) ran.set(address, 0);
        shown += 1;
      } catch (error) {
        // It is saved instead, or is an error without a text.
        if (!/Download is starting|ERR_ABORTED|ERR_HTTP_RESPONSE_CODE_FAILURE/.test(error.message)) throw error;
        // Chromium's own page about that may come late, and end the visit to the next address.
        await page.close();
        page = await context.newPage();
      }
    }
    await page.close();
  }));
  return shown;
}

async function upload(user, name) {
  const form = new FormData();
  form.append('image', new Blob([evil]), name);
  return (await (await user('POST', '/upload/image', form)).json()).name;
}

/** Has a pull worker make a file with each ending, and gives the files as the history has them. */
async function work(user, worker, endings) {
  const next = '/next-job?worker_id=evil&classes=Evil';
  await worker('GET', next);
  const prompt = { 1: { class_type: 'Evil', inputs: { text: evil }, _meta: { title: evil } } };
  const { prompt_id: id } = await (await user('POST', '/prompt', JSON.stringify({ prompt }))).json();
  const { id: attempt } = await (await worker('GET', `${next}&wait=60`)).json();
  for (const ending of endings) await worker('POST', `/upload-output/${attempt}?filename=${encodeURIComponent(`evil${ending}`)}`, evil);
  await worker('POST', `/complete-job/${attempt}`, JSON.stringify({ result: { text: evil } }));
  const history = await until('the job has ended', async () => (await (await user('GET', `/history/${id}`)).json())[id]);
  const job = Object.values(history.outputs).flatMap((output) => Object.values(output)).flat().filter((file) => file.filename);
  assert.equal(job.length, endings.length, JSON.stringify(history.outputs).slice(0, 500));
  return { id, job };
}
