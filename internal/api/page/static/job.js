import { button, h, show, text } from './dom.js';
import { lastSearch, link, searchLink, stateBadge } from './find.js';
import { act, call, jobs } from './hub.js';
import { facts } from './panel.js';
import { said } from './reasons.js';
import { now, store } from './store.js';
import { moment, num, percent, say, short, span, t } from './words.js';

const every = 2000;
const alive = (j) => j.status === 'queued' || j.status === 'running';

// create shows one job: what became of it and why, and what can be done about it.
export function create(view, key) {
  let job = null;
  let explained = null;
  let shown = '';
  let ended = false;
  const head = h('div.jobhead');
  const body = h('div.jobbody');
  const missing = h('div.empty', { hidden: true }, h('h2', {}, t('no.job')), h('p', {}, t('no.job.help')), h('p', {}, h('a', { href: searchLink({ text: key }) }, t('search.all'))));
  view.append(h('div.scroll.jobpage', { tabindex: '0', role: 'region', 'aria-label': t('job') }, head, body, missing));

  async function load() {
    let next;
    try {
      next = await call('GET', `jobs/${encodeURIComponent(key)}/whole`);
    } catch (error) {
      if (ended) return;
      if (error.status === 404 && !job) show(missing, true);
      else if (error.status !== 404 && store.connected) say(`${t('failed')}: ${error.message}`, true);
      return;
    }
    if (ended) return;
    show(missing, false);
    job = next;
    if (job.status === 'queued') explained = await jobs.explain({ id: job.key, tenant: job.tenant }).catch(() => null);
    else explained = null;
    if (ended) return;
    draw();
  }

  function draw() {
    const now = JSON.stringify([job, explained, store.me.commands]);
    if (now === shown) return; // what somebody has opened or marked stays
    shown = now;
    const open = new Set([...body.querySelectorAll('details[open]')].map((d) => d.dataset.name));
    head.replaceChildren(...headOf(job, load));
    body.replaceChildren(...[about(job, explained), errorOf(job), attempts(job), candidates(explained), time(job, load), messages(job), logOf(job), outputs(job), graph(job)].filter(Boolean));
    for (const d of body.querySelectorAll('details')) if (open.has(d.dataset.name)) d.open = true;
  }
  load();
  const timer = setInterval(() => { if (!document.hidden && store.connected && (!job || alive(job))) load(); }, every);
  return { update() {}, end() { ended = true; clearInterval(timer); } };
}

const box = (title, ...children) => h('section.plotbox', {}, h('h2', {}, title), children);

function headOf(job, again) {
  const may = store.me.commands || job.tenant === store.me.tenant;
  const of = { id: job.key, tenant: job.tenant };
  const b = (label, f, bad) => h(bad ? 'button.danger' : 'button', { type: 'button', onclick: async () => { await f(); again(); } }, label);
  const verbs = [];
  if (may && alive(job)) verbs.push(b(t('cancel'), () => confirm(t('ask.cancel')) && jobs.cancel(of), true));
  if (may && job.status === 'queued') {
    const priority = h('input.priority', { type: 'number', min: -100, max: 100, value: job.priority, 'aria-label': t('priority') });
    verbs.push(b(t(job.paused ? 'resume' : 'pause'), () => jobs.steer(of, { paused: !job.paused }, t(job.paused ? 'did.resume' : 'did.pause'))),
      b(t('front'), () => jobs.steer(of, { position: 'front' }, t('did.move'))),
      h('label.set', {}, t('priority'), priority, b(t('set'), () => jobs.steer(of, { priority: Number(priority.value) }, t('did.priority')))));
  }
  if (may && job.graph && !alive(job)) {
    verbs.push(b(t('again'), async () => {
      const made = await act(t('did.again'), 'POST', `jobs/${encodeURIComponent(job.key)}/again?tenant=${encodeURIComponent(job.tenant)}`);
      if (made) location.hash = link(made.id);
    }));
  }
  return [
    h('div.jobtitle', {}, h('a.back', { href: lastSearch() }, `‹ ${t('jobs')}`), h('h2.mono', {}, job.id), copy(job.id), stateBadge(job.status)),
    h('div.verbs', {}, verbs),
  ];
}

// copy puts an id where it can be pasted. Browsers let only pages by HTTPS or of this machine do so.
function copy(id) {
  return navigator.clipboard && h('button.word', { type: 'button', onclick: () => navigator.clipboard.writeText(id).then(() => say(t('did.copy'))) }, t('copy'));
}

// course is how long a job waited and ran, to scale.
function course(job) {
  const end = job.finished_at || now() / 1000;
  const parts = [['draining', 'waited', (job.started_at || end) - job.created_at], [job.status === 'failed' ? 'sick' : 'busy', 'took', job.started_at ? end - job.started_at : 0]];
  const words = parts.filter(([, , seconds]) => seconds > 0).map(([, word, seconds]) => `${t(word)}: ${short(seconds)}`).join(', ');
  return words && h('div.bar.course', { role: 'img', 'aria-label': words, title: words }, parts.map(([color, , seconds]) => {
    const part = h(`i.${color}`);
    part.style.flexGrow = Math.max(0, seconds);
    return part;
  }));
}

function about(job, e) {
  const took = job.started_at && job.finished_at ? short(job.finished_at - job.started_at) : '';
  const waited = job.started_at && job.status !== 'queued' ? short(Math.max(0, job.started_at - job.created_at)) : '';
  return box(t('details'), course(job), facts([
    [t('user'), job.tenant], [t('instance'), job.instance && h('a', { href: searchLink({ instance: job.instance }) }, job.instance)],
    [t('why.there'), said(job.why)], [t('why'), job.status === 'queued' ? said(e?.reason || job.error) : ''],
    [t('place'), job.position === null ? '' : num(job.position + 1)], [t('eta'), job.eta === null ? '' : span(job.eta * 1000)],
    [t('progress'), job.status === 'running' ? percent(job.progress) : ''], [t('priority'), job.priority ? String(job.priority) : ''], [t('band'), job.band && t(job.band)],
    [t('attempts'), job.attempts ? num(job.attempts) : ''], [t('created'), moment(job.created_at * 1000)],
    [t('began'), job.started_at ? moment(job.started_at * 1000) : ''], [t('ended'), job.finished_at ? moment(job.finished_at * 1000) : ''],
    [t('waited'), waited], [t('took'), took], [t('id.hub'), h('span.mono', {}, job.key)], [t('id.instance'), job.upstream_id && h('span.mono', {}, job.upstream_id)],
  ]));
}

// lastOf is the data of the last message of a kind.
function lastOf(job, kind) { return (job.status_of_run?.messages ?? []).filter(([name]) => name === kind).at(-1)?.[1]; }

function errorOf(job) {
  const error = lastOf(job, 'execution_error');
  if (job.status === 'queued' || job.status === 'done' || (!job.error && !error)) return null;
  const where = error?.node_type ? `${error.node_type} (${t('node')} ${error.node_id})` : '';
  const trace = Array.isArray(error?.traceback) ? error.traceback.join('') : '';
  return box(t('error.of'), h('p.bad', {}, error ? [error.exception_type, said(error.exception_message?.trim())].filter(Boolean).join(': ') : said(job.error)),
    error && job.error && h('p.quiet', {}, said(job.error)), where && h('p.quiet', {}, where), trace && h('pre', { tabindex: '0' }, trace));
}

function attempts(job) {
  if (!job.lost.length && !job.failed_at.length) return null;
  const lines = job.lost.map((line, n) => [line, job.lost_at?.[n]]);
  if (job.instance && !alive(job)) lines.push([`${job.instance}: ${t(`state.${job.status}`)}`, job.finished_at]);
  return box(t('attempts'), h('ol', {}, lines.map(([line, at]) => h('li', {}, at ? h('span.quiet', {}, `${moment(at * 1000)} `) : '', said(line)))), job.failed_at.length > 0 && h('p.quiet', {}, `${t('failed.at')}: ${job.failed_at.join(', ')}`));
}

function candidates(e) {
  if (!e?.instances?.length) return null;
  return box(t('why2'), h('ul.candidates', {}, e.instances.slice(0, 100).map((c) => h('li', {}, h('span.name', {}, c.name), h('span.sub', {}, [said(c.why), c.lacks.slice(0, 5).join(', ')].filter(Boolean).join(': '))))));
}

// time is where the time of jobs like this one goes, and what would make them shorter.
function time(job, again) {
  const { runs, seconds, where, hints, dismissed } = job.time;
  const may = store.me.commands || job.tenant === store.me.tenant;
  const hidden = may ? dismissed : [];
  if (!where.length && !hints.length && !hidden.length) return null;
  const button = (name, verb, words) => h('button', { type: 'button', onclick: async () => { await verb(job, name); again(); } }, words);
  return box(t('time.goes'), where.length > 0 && h('p.quiet', {}, `${t('time.of', { n: num(runs) })}: ${short(seconds)}`),
    where.length > 0 && h('table.time', {}, h('tbody', {}, where.map((w) => h('tr', {}, h('th', { scope: 'row' }, w.class_type), h('td.quiet', {}, t(`phase.${w.phase}`)),
      h('td.num', {}, short(w.seconds)), h('td', {}, h('meter', { value: w.seconds / seconds, 'aria-label': percent(w.seconds / seconds) })))))),
    h('ul', {}, hints.map((hint) => h('li', {}, `${said(hint.text)} ${t('saves', { x: short(hint.saves) })} `, hint.job && [h('a', { href: link(hint.job) }, t('hint.open')), ' '],
      may && button(hint.name, jobs.dismiss, t('hint.hide'))))),
    hidden.length > 0 && h('p.quiet', {}, `${t('hint.hidden')} `, hidden.map((name) => [button(name, jobs.restore, t(`hint.${name}`)), ' '])));
}

function messages(job) {
  const all = job.status_of_run?.messages ?? [];
  if (!all.length) return null;
  return h('details.plotbox', { 'data-name': 'messages' }, h('summary', {}, `${t('messages')} (${num(all.length)})`), h('ul.messages', {}, all.slice(0, 500).map(([kind, data]) => h('li', {},
    h('span.num', {}, data?.timestamp ? moment(data.timestamp) : ''), ' ', h('span.mono', {}, kind), ' ', h('span.quiet', {}, data?.node_id ?? (Array.isArray(data?.nodes) ? data.nodes.join(', ') : ''))))));
}

// logOf is what the instance wrote meanwhile, read when somebody opens it.
function logOf(job) {
  if (!job.instance || !job.started_at || !(store.me.sees_all || store.me.operator)) return null;
  const lines = h('pre', { tabindex: '0' }, t('looking'));
  const read = async (event) => {
    if (!event.target.open) return;
    const log = await call('GET', `jobs/${encodeURIComponent(job.key)}/log`).catch(() => ({ entries: [] }));
    text(lines, log.entries.map((line) => `${line.t.slice(11, 23)}  ${line.m}`).join('') || t('no.log'));
  };
  return h('details.plotbox', { 'data-name': 'log', ontoggle: read }, h('summary', {}, t('log', { x: job.instance })), lines);
}

function outputs(job) {
  const files = [];
  const look = (value) => {
    if (Array.isArray(value)) value.forEach(look);
    else if (value && typeof value === 'object') {
      if (typeof value.filename === 'string' && typeof value.type === 'string') files.push(value);
      else Object.values(value).forEach(look);
    }
  };
  look(job.outputs);
  if (!files.length) return null;
  // Files are ComfyUI's, of which the operators' site has nothing, and each user has their own.
  const open = job.tenant === store.me.tenant && !store.me.operators_site;
  return box(`${t('outputs')} (${num(files.length)})`, h('ul', {}, files.slice(0, 200).map((f) => h('li', {}, open
    ? h('a', { href: `../view?${new URLSearchParams({ filename: f.filename, subfolder: f.subfolder ?? '', type: f.type })}`, target: '_blank', rel: 'noopener' }, f.filename) : f.filename))));
}

function graph(job) {
  if (!job.graph) return null;
  const nodes = Object.entries(job.graph);
  const raw = JSON.stringify(job.graph, null, 2);
  return h('details.plotbox', { 'data-name': 'graph' }, h('summary', {}, `${t('graph')} (${num(nodes.length)})`),
    h('div.verbs', {}, button('save', t('save.graph'), () => {
      const url = URL.createObjectURL(new Blob([raw], { type: 'application/json' }));
      const a = h('a', { href: url, download: `${job.key}.json`, hidden: true });
      document.body.append(a);
      a.click();
      a.remove();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    })),
    h('ul.messages', {}, nodes.slice(0, 500).map(([id, node]) => h('li', {}, h('span.num', {}, id), ' ', h('span.mono', {}, node?.class_type ?? ''), ' ', h('span.quiet', {}, node?._meta?.title ?? '')))),
    h('pre', { tabindex: '0' }, raw.length > 200000 ? `${raw.slice(0, 200000)}…` : raw));
}
