// The hub's panel in ComfyUI's own page: where each of your jobs is in the hub's queue, when it will
// begin and end, on which GPU, why it waits, and how much of your limits you are using. It uses what
// the page documents for extensions; a page that lacks some of it is left as it is.
import { h, show, text } from '../../hub/page/dom.js';
import { said } from '../../hub/page/reasons.js';
import { clock, gpuName, num, percent, short, span, speak, t } from '../../hub/page/words.js';

const every = 3000;
const most = 50; // jobs that are shown
const explained = 3; // of the first that wait, the hub is asked why
const advised = 3; // of the first, it is asked what would make them shorter
const hub = new URL('../../hub/', import.meta.url);
const app = window.comfyAPI?.app?.app ?? window.app;

async function ask(path) {
  const answer = await fetch(new URL(path, hub));
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  return answer.json();
}

/** What the hub says of this user's jobs: null if it cannot be asked. */
async function look() {
  try {
    const [running, waiting, limits, instances] = await Promise.all([ask(`jobs?status=running&limit=${most}`), ask(`jobs?status=queued&limit=${most}`), ask('limits'), ask('instances')]);
    const why = await Promise.all(waiting.slice(0, explained).map(({ id }) => ask(`jobs/${encodeURIComponent(id)}`).then((job) => job.error, () => '')));
    why.forEach((reason, n) => { waiting[n].error = reason || waiting[n].error; });
    const first = place?.isConnected ? [...running, ...waiting].slice(0, advised) : [];
    await Promise.all(first.map((job) => ask(`v1/hints/${encodeURIComponent(job.id)}`).then(({ hints: [hint] }) => { job.hint = hint; }, () => {})));
    return { running, waiting, limits, gpus: new Map(instances.map((i) => [i.name, gpuName(i.gpu)])) };
  } catch {
    return null;
  }
}

const at = (seconds) => clock(Date.now() + seconds * 1000);

/** When a job begins and ends, as far as anybody knows. */
function times(job) {
  const lines = [];
  if (job.starts_in !== null) lines.push(job.starts_in < 1 ? t('panel.soon') : `${t('panel.begins')} ${at(job.starts_in)} (${span(job.starts_in * 1000)})`);
  if (job.eta !== null) lines.push(`${t('panel.ends')} ${at(job.eta)} (${span(job.eta * 1000)})`);
  return lines.length ? lines.join(', ') : t('panel.unknown');
}

/** The same in a few words. */
function brief(job) {
  const moment = job.status === 'queued' ? job.starts_in : job.eta;
  const what = job.status === 'queued' ? `${t('place')} ${job.position === null ? '—' : num(job.position + 1)}` : job.instance;
  return moment === null ? what : `${what} · ${t(job.status === 'queued' ? 'panel.begins' : 'panel.ends').toLowerCase()} ${at(moment)}`;
}

/** What would save most time with a job, as far as anybody knows. */
const tip = ({ hint }) => hint && `${t('tip')}: ${said(hint.text)} ${t('saves', { x: short(hint.saves) })}`;

const items = new Map(); // what is shown of each job, which stays, so that a link can be clicked

function item(job, title, ...lines) {
  let shown = items.get(job.id);
  if (!shown) {
    const name = h('strong');
    const link = h('a', { href: new URL(`#job/${encodeURIComponent(job.id)}`, hub), target: '_blank', rel: 'noopener', style: 'opacity:.7; color:inherit' }, job.id.length > 12 ? `${job.id.slice(0, 8)}…` : job.id);
    const more = h('div', { style: 'opacity:.85' });
    shown = { name, more, element: h('li', { style: 'margin:0 0 .75rem; overflow-wrap:anywhere' }, h('div', {}, name, ' ', link), more) };
    items.set(job.id, shown);
  }
  text(shown.name, title);
  shown.more.replaceChildren(...lines.filter(Boolean).map((line) => h('div', {}, line)));
  return shown.element;
}

/** Has an element contain these, and touches nothing if it does. */
function fill(element, children) {
  if (element.children.length !== children.length || children.some((child, n) => element.children[n] !== child)) element.replaceChildren(...children);
}

function limitsOf({ running, waiting, gpu_seconds: gpu, rate }) {
  const lines = [];
  if (running.most !== null) lines.push(t('panel.limit.running', { n: num(running.now), x: num(running.most) }));
  if (waiting.most !== null) lines.push(t('panel.limit.waiting', { n: num(waiting.now), x: num(waiting.most) }));
  if (gpu.most !== null) lines.push(t('panel.limit.gpu', { n: short(gpu.now), x: short(gpu.most) }));
  if (rate !== null) lines.push(t('panel.limit.rate', { x: num(rate) }));
  return lines;
}

/** The parts of the panel. */
function parts() {
  const title = () => h('h4', { style: 'margin:1rem 0 .5rem; font-weight:600' });
  const list = () => h('ul', { style: 'list-style:none; margin:0; padding:0' });
  return {
    note: h('p', { role: 'status' }), runningTitle: title(), running: list(), waitingTitle: title(), waiting: list(), limitsTitle: title(), limits: list(),
    open: h('p', { style: 'margin-top:1rem' }, h('a', { href: hub, target: '_blank', rel: 'noopener', style: 'color:inherit' }, t('panel.open'))),
  };
}

function draw(p, found) {
  const { running, waiting, limits, gpus } = found ?? { running: [], waiting: [], limits: null, gpus: new Map() };
  for (const id of items.keys()) if (![...running, ...waiting].some((job) => job.id === id)) items.delete(id);
  const bounds = limits ? limitsOf(limits) : [];
  show(p.note, !found || running.length + waiting.length === 0);
  text(p.note, t(found ? 'panel.none' : 'panel.away'));
  show(p.runningTitle, running.length > 0);
  text(p.runningTitle, `${t('running')}: ${num(limits?.running.now ?? 0)}`);
  fill(p.running, running.map((job) => item(job, [job.instance, gpus.get(job.instance)].filter(Boolean).join(' · '), `${percent(job.progress)} · ${times(job)}`, tip(job))));
  show(p.waitingTitle, waiting.length > 0);
  text(p.waitingTitle, `${t('waiting')}: ${num(limits?.waiting.now ?? 0)}`);
  fill(p.waiting, waiting.map((job) => item(job, `${t('place')} ${job.position === null ? '—' : num(job.position + 1)}`, times(job), said(job.error) || t('turn'), tip(job))));
  show(p.limitsTitle, bounds.length > 0);
  text(p.limitsTitle, t('panel.limits'));
  p.limits.replaceChildren(...bounds.map((line) => h('li', {}, line)));
}

/** Adds a line to the jobs that the page's own list shows, if it has one that names them. */
function annotate(rows, found) {
  const jobs = new Map([...found?.running ?? [], ...found?.waiting ?? []].map((job) => [job.id, job]));
  for (const row of rows) {
    const job = jobs.get(row.dataset.jobId);
    let line = row.querySelector('.comfyhub-line');
    if (!job) {
      line?.remove();
      continue;
    }
    if (!line) {
      line = h('span.comfyhub-line', { style: 'position:absolute; right:.75rem; bottom:.25rem; font-size:.65rem; opacity:.75; pointer-events:none' });
      if (getComputedStyle(row).position === 'static') row.style.position = 'relative';
      row.append(line);
    }
    line.textContent = brief(job);
  }
}

let place = null; // where the panel is, while it is open
let content = null;

async function tick() {
  if (document.hidden) return;
  const rows = document.querySelectorAll('[data-job-id]');
  if (!place?.isConnected && !rows.length) return;
  speak(String(app.extensionManager?.setting?.get?.('Comfy.Locale') ?? navigator.language).slice(0, 2));
  const found = await look();
  if (place?.isConnected) draw(content, found);
  annotate(rows, found);
}

/** Shows the panel. */
function open(element) {
  content = parts();
  items.clear();
  place = h('div.comfyhub-panel', { style: 'padding:0 1rem 1rem; font-size:.85rem; overflow-y:auto; height:100%' }, h('h3', { style: 'margin:1rem 0' }, 'ComfyHub'), Object.values(content));
  element.replaceChildren(place);
  tick();
}

app?.registerExtension?.({
  name: 'ComfyHub.Panel',
  setup() {
    app.extensionManager?.registerSidebarTab?.({ id: 'comfyhub', icon: 'pi pi-server', title: 'Hub', tooltip: 'ComfyHub', type: 'custom', render: open });
    setInterval(tick, every);
  },
});
