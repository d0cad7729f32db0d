// Uses the hub's dashboard in Chromium, as a person does, and holds it against axe-core. The
// hub needs idle simulated instances, nothing in its queue, `operators default`, and a site for
// operators beside that of ComfyUI.
//
//     node tools/browser/dashboard.mjs --hub http://127.0.0.1:8188 --operators http://127.0.0.1:8187 --shots artifacts/browser/dashboard
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';

const { values: options } = parseArgs({
  options: {
    hub: { type: 'string', default: 'http://127.0.0.1:8188' },
    operators: { type: 'string', default: 'http://127.0.0.1:8187' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    shots: { type: 'string', default: 'artifacts/browser/dashboard' },
  },
});
const PATIENCE = 60_000;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(options.shots, { recursive: true });

const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const faults = [];

/** Opens the dashboard as a new visitor, at ComfyUI's site or at the operators'. */
async function visit(tab, more = {}, site = options.hub) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: 'en-US', colorScheme: 'light', ...more });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => {
    // The first request for a preview finds none.
    if (message.type() === 'error' && !message.location().url.includes('/preview?')) faults.push(message.text());
  });
  page.on('request', (request) => {
    if (![options.hub, options.operators].some((known) => request.url().startsWith(`${known}/`)) && !request.url().startsWith('blob:')) faults.push(`a request to ${request.url()}`);
  });
  page.on('dialog', (dialog) => dialog.accept());
  await page.goto(`${site}/hub/#${tab}`);
  await page.waitForSelector('.connection.on');
  return page;
}

/** Fails if axe finds anything. Its script goes in by the debugger: the page's policy lets no other in. */
async function accessible(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).slice(0, 3).join(' ')}`), [], `axe: ${name}`);
}

const shoot = (page, name) => page.screenshot({ path: path.join(options.shots, `${name}.png`) });

/** Posts a prompt that takes some seconds. */
async function post(nonce, seconds, name = `dashboard ${nonce}`) {
  const answer = await fetch(`${options.hub}/prompt`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({
      client_id: 'dashboard', prompt_id: name, prompt: {
        1: { class_type: 'EmptyImage', inputs: { width: 64, height: 64, batch_size: 1, color: nonce } },
        2: { class_type: 'SimulatedWork', inputs: { image: ['1', 0], seconds, steps: 100, nonce } },
        3: { class_type: 'SaveImage', inputs: { images: ['2', 0], filename_prefix: 'dashboard' } },
      },
    }),
  });
  assert.equal(answer.status, 200, await answer.text());
  return name;
}

const queued = (page) => page.$$eval('.queue .row:not(.head) .cell-place:not(.busy)', (cells) => cells
  .filter((cell) => cell.textContent).sort((a, b) => Number(a.textContent) - Number(b.textContent))
  .map((cell) => cell.parentElement.querySelector('.name').textContent));
const ordered = (page, names) => page.waitForFunction((want) => {
  const cells = [...document.querySelectorAll('.queue .row:not(.head) .cell-place:not(.busy)')].filter((cell) => cell.textContent);
  cells.sort((a, b) => Number(a.textContent) - Number(b.textContent));
  return cells.map((cell) => cell.parentElement.querySelector('.name').textContent).join() === want;
}, names.join());

const steps = {
  async 'a run is seen live'() {
    const page = await visit('fleet');
    const instances = await page.locator('.fleet .row:not(.head)').count();
    assert.ok(instances > 0);
    await accessible(page, 'fleet');
    const long = await post(1, 200); // outlasts what is looked at here, and is cancelled then
    const row = page.locator('.fleet .row', { hasText: 'SimulatedWork' }).first();
    await row.waitFor();
    const width = () => row.locator('.track i').first().evaluate((bar) => Number.parseFloat(bar.style.width));
    const before = await width();
    await page.waitForFunction((w) => [...document.querySelectorAll('.cell-work .track i')].some((bar) => Number.parseFloat(bar.style.width) > w), before);
    await row.focus();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.preview')?.naturalWidth > 0);
    await accessible(page, 'an instance');
    assert.doesNotMatch(await page.locator('#panel').innerText(), /\[object/);
    await shoot(page, 'instance');
    await page.keyboard.press('Escape');
    assert.ok(await row.evaluate((element) => element === document.activeElement), 'the focus is back');
    const answer = await fetch(`${options.hub}/hub/jobs/${encodeURIComponent(long)}/cancel`, { method: 'POST' });
    assert.equal(answer.status, 200, await answer.text());
    await page.getByText('SimulatedWork').first().waitFor({ state: 'detached' });
  },

  async 'operators act at their own site only'() {
    const page = await visit('queue');
    await page.locator('#elsewhere a').waitFor();
    assert.equal(await page.locator('#elsewhere a').getAttribute('href'), `${options.operators}/hub/`);
    await accessible(page, "a note of the operators' site");
    assert.equal(await page.getByRole('button', { name: 'Pause the queue' }).isVisible(), false);

    // What the script of a custom node does on ComfyUI's page, with the login of whoever looks.
    const attempts = (from, to) => from.evaluate(async (site) => {
      const found = [];
      for (const path of ['pause', 'drain?instance=ci-1', 'restart?instance=ci-1', 'forget?instance=ci-1', 'jobs/x/cancel?tenant=ada']) {
        for (const more of [{}, { mode: 'no-cors' }, { referrerPolicy: 'no-referrer' }, { credentials: 'include', headers: { 'Content-Type': 'text/plain' }, body: 'x' }]) {
          found.push(await fetch(`${site}/hub/${path}`, { method: 'POST', ...more }).then((answer) => answer.status, () => 'hidden'));
        }
      }
      return [...new Set(found)];
    }, to);
    const context = page.context();
    const script = await context.newPage(); // a page of the site without the dashboard's policy
    await script.route(`${options.hub}/script`, (route) => route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>x</title>' }));
    await script.goto(`${options.hub}/script`);
    assert.deepEqual(await attempts(script, options.hub), [403]);
    await attempts(script, options.operators);
    await script.evaluate((site) => {
      const form = Object.assign(document.createElement('form'), { method: 'post', action: `${site}/hub/pause` });
      document.body.append(form);
      form.submit();
    }, options.operators);
    await script.waitForURL(`${options.operators}/hub/pause`);
    assert.match(await script.locator('body').innerText(), /foreign_origin/);
    const { paused } = await (await fetch(`${options.hub}/hub/stats`)).json();
    assert.equal(paused ?? false, false, 'no script has paused the queue');

    await page.locator('#elsewhere a').click();
    await page.waitForURL(`${options.operators}/hub/`);
    await page.waitForSelector('.connection.on');
    await page.locator('#tab-results').waitFor({ state: 'detached' });
    assert.equal((await fetch(`${options.operators}/queue`)).status, 404);
  },

  async 'jobs are moved, paused and cancelled'() {
    const page = await visit('queue', {}, options.operators);
    await page.getByRole('button', { name: 'Pause the queue' }).click();
    await page.getByRole('button', { name: 'Resume the queue' }).waitFor();
    const [a, b, c] = [await post(11, 1), await post(12, 1), await post(13, 1, '<img src=x onerror=alert(1)>')];
    await ordered(page, [a, b, c]);
    await accessible(page, 'queue');
    await shoot(page, 'queue');
    const row = (name) => page.locator('.queue .row:not(.head)', { has: page.locator(`.name[title="${name}"]`) });
    await row(c).focus();
    await page.keyboard.press('Alt+ArrowUp');
    await ordered(page, [a, c, b]);
    await row(a).getByRole('button', { name: 'Move down' }).click();
    await ordered(page, [c, a, b]);
    await row(b).dragTo(row(c));
    await ordered(page, [b, c, a]);
    await row(a).getByRole('button', { name: 'To the front' }).click();
    await ordered(page, [a, b, c]);
    await row(b).getByRole('button', { name: 'Pause', exact: true }).click();
    await row(b).getByText('paused', { exact: true }).waitFor();
    await row(b).getByRole('button', { name: 'Resume', exact: true }).click();
    await row(b).focus();
    await page.keyboard.press('Delete');
    await ordered(page, [a, c]);
    assert.deepEqual(await queued(page), [a, c]);
    await page.getByRole('button', { name: 'Resume the queue' }).click();
    await ordered(page, []);
  },

  async 'a job is found, explained, cancelled and run again'() {
    const page = await visit('jobs?status=queued', {}, options.operators);
    await page.getByText('No job fits').waitFor();
    await accessible(page, 'no job');
    const long = [await post(31, 200), await post(32, 200), await post(33, 200)];
    const [waiting] = [await post(34, 200, 'needle 34'), await post(35, 200, 'needle 35')];
    await page.getByRole('searchbox', { name: 'Id, error' }).fill('NEEDLE');
    await page.locator('.jobs a.name', { hasText: waiting }).waitFor();
    assert.equal(await page.locator('.jobs .row:not(.head)').count(), 2);
    await accessible(page, 'jobs');
    await shoot(page, 'jobs');
    await page.locator('.jobs a.name', { hasText: waiting }).click();
    await page.getByText('What speaks for and against each').waitFor();
    await page.getByText('it runs another job').first().waitFor();
    await page.getByText('Graph (3)').click();
    await page.locator('.jobbody pre', { hasText: 'SimulatedWork' }).waitFor();
    await accessible(page, 'a job');
    await page.getByRole('spinbutton', { name: 'Priority' }).fill('7');
    await page.getByRole('button', { name: 'Set' }).click();
    await page.locator('dt:text-is("Priority") + dd', { hasText: '7' }).waitFor();
    await shoot(page, 'job');
    await page.locator('a.back').click();
    await page.getByRole('button', { name: 'Cancel these' }).click();
    await page.getByText('No job fits').waitFor();
    for (const id of long) {
      const at = `${options.hub}/hub/jobs/${encodeURIComponent(id)}`;
      await fetch(`${at}/cancel`, { method: 'POST' });
      for (let status = ''; status !== 'cancelled';) ({ status } = await fetch(at).then((answer) => answer.json()));
    }
    await page.goto(`${options.operators}/hub/#jobs?status=cancelled`);
    await page.locator('.jobs a.name', { hasText: long[0] }).click();
    await page.getByRole('button', { name: 'Run again' }).click();
    await page.locator('.jobtitle .badge', { hasText: 'running' }).waitFor();
    assert.notEqual(await page.locator('.jobtitle h2').innerText(), long[0]);
    await page.getByRole('button', { name: 'Cancel', exact: true }).click();
    await page.locator('.jobtitle .badge', { hasText: 'cancelled' }).waitFor();
  },

  async 'operators see what comes by need, and what it costs'() {
    const page = await visit('fleet', {}, options.operators);
    let spent = 19;
    await page.route('**/hub/scale', (route) => route.fulfill({ json: {
      classes: [{ class: 'a10g', wanted: 3, have: 2, starting: 1, leaving: 0, min: 0, max: 4, why: '9 jobs wait, with 4m30s of work', error: null, price: 1.2, spent_today: spent, budget: 20 }],
      overflow: spent > 19 ? [] : [{ endpoint: 'cloud', running: 2, spent_today: 0, set_aside: 0, price: 0, closed: 'its budget of the day is spent' }],
    } }));
    await page.reload();
    const cards = page.locator('.spare .card');
    await cards.nth(1).waitFor();
    assert.deepEqual((await cards.allInnerTexts()).map((text) => text.split('\n').filter(Boolean)), [
      ['a10g', '2 of 3 machines · 1 starting', '9 jobs wait, with 4m30s of work', '19.00 of 20.00 today'],
      ['cloud', 'serverless, 2 running', 'its budget of the day is spent'],
    ]);
    assert.ok(await cards.first().evaluate((card) => card.classList.contains('full')), 'the budget is nearly spent');
    await accessible(page, 'what comes by need');
    await shoot(page, 'spare');
    spent = 20;
    await cards.nth(1).waitFor({ state: 'detached' });
    await page.close();
  },

  async 'the page says that the hub is away'() {
    const page = await visit('fleet');
    const stream = [
      ['hello', { tenant: 'default', operator: false, operators_site: false, now: Date.now() }],
      ['snapshot', { instances: [{ name: 'lost', state: 'busy', job: 'x', class: 'KSampler', progress: 0.5 }], counts: { waiting: 1, running: 1, own_waiting: 1, own_running: 1 } }],
    ];
    let first = true;
    await page.route('**/hub/events', (route) => {
      if (!first) return route.abort();
      first = false;
      return route.fulfill({ contentType: 'text/event-stream', body: stream.map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('') });
    });
    await page.reload();
    await page.locator('body.away').waitFor();
    await page.getByText('KSampler', { exact: true }).waitFor(); // and no percentage
    assert.match(await page.locator('.connection').innerText(), /Last update \d\d:\d\d:\d\d/);
    assert.equal(await page.locator('.summary .cell').last().locator('.value').innerText(), '—');
    await shoot(page, 'away');
    faults.length = 0; // the browser complains of requests that fail
    await page.close();
  },

  async 'results are shown and run again'() {
    const page = await visit('results');
    const cards = page.locator('.card:not(.failed)');
    await cards.first().locator('img').waitFor();
    await page.waitForFunction(() => document.querySelector('.card img').naturalWidth > 0);
    await accessible(page, 'results');
    await shoot(page, 'results');
    const saved = page.waitForEvent('download');
    await cards.first().getByRole('button', { name: 'Download all' }).click();
    assert.match((await saved).suggestedFilename(), /^dashboard.*\.png$/);
    const workflow = page.waitForEvent('download');
    await cards.first().getByRole('button', { name: 'Workflow' }).click();
    assert.match((await workflow).suggestedFilename(), /\.json$/);
    const before = await cards.count();
    await cards.first().getByRole('button', { name: 'Run again' }).click();
    await page.waitForFunction((n) => document.querySelectorAll('.card:not(.failed)').length > n, before);
  },

  async 'faults and trends'() {
    const refused = await fetch(`${options.hub}/prompt`, { method: 'POST', body: '{"prompt": {"1": {"class_type": "NoSuchClass", "inputs": {}}}}' });
    assert.equal(refused.status, 400);
    const page = await visit('faults');
    await page.getByText('NoSuchClass').first().waitFor();
    await accessible(page, 'faults');
    await page.goto(`${options.hub}/hub/#trends`);
    await page.locator('.plotbox').first().waitFor();
    await accessible(page, 'trends');
    await shoot(page, 'trends');
  },

  async 'keys, dark colours, a phone, and Russian'() {
    const page = await visit('fleet', { colorScheme: 'dark', locale: 'ru-RU' });
    await page.getByRole('tab', { name: 'Серверы' }).focus();
    for (const name of ['Очередь', 'Задания', 'Результаты', 'Динамика', 'Сбои', 'Серверы']) {
      await page.keyboard.press('ArrowRight');
      await page.waitForFunction((tab) => document.activeElement.textContent === tab, name);
      await accessible(page, `dark, ${name}`);
    }
    assert.match(await page.locator('.summary').innerText(), /свобод(ен|ны)/);
    await page.locator('.language').selectOption('en');
    await page.getByRole('tab', { name: 'Fleet' }).waitFor();
    const phone = await visit('fleet', { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: 'dark', locale: 'ru-RU' });
    for (const tab of ['fleet', 'queue', 'jobs', 'results', 'trends', 'faults']) {
      await phone.goto(`${options.hub}/hub/#${tab}`);
      await phone.waitForSelector(`#tab-${tab}[aria-selected=true]`);
      assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${tab} fits on a phone`);
      await accessible(phone, `phone, ${tab}`);
    }
    await phone.goto(`${options.hub}/hub/#fleet`);
    await shoot(phone, 'phone');
  },
};

try {
  for (const [name, step] of Object.entries(steps)) {
    await step();
    assert.deepEqual(faults, [], `what the browser complained of: ${name}`);
    console.log(`ok    ${name}`);
  }
} catch (error) {
  console.error(error);
  for (const [n, context] of browser.contexts().entries()) for (const page of context.pages()) await shoot(page, `failed-${n}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
