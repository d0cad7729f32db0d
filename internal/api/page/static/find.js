import { attr, h, icon, show, text } from './dom.js';
import { call } from './hub.js';
import { List } from './list.js';
import { said } from './reasons.js';
import { store } from './store.js';
import { moment, num, say, short, t } from './words.js';

// The hub looks for the jobs, a part at a time, so what is found never depends on what this
// browser happens to hold.
const states = ['queued', 'running', 'done', 'failed', 'cancelled'];
const alive = ['queued', 'running'];
const periods = [['', 'ever'], ['3600', 'last.hour'], ['86400', 'last.day'], ['604800', 'last.week']];
const bands = ['', 'interactive', 'normal', 'bulk'];
const pageSize = 100;
// maxParts bounds the requests that one page or one count may take.
const maxParts = 12;
const pictures = { queued: 'draining', running: 'busy', done: 'idle', failed: 'close', cancelled: 'offline' };

// stateBadge shows the state of a job by colour, shape and word.
export function stateBadge(state) { return h(`span.badge.job-${state}`, {}, icon(pictures[state] ?? 'idle'), h('span', {}, t(`state.${state}`))); }

// link is the address of the page of a job.
export const link = (key) => `#job/${encodeURIComponent(key)}`;

// searchLink is the address of a search.
export const searchLink = (filters) => `#jobs?${new URLSearchParams(filters)}`;

let last = '#jobs';
// lastSearch is the address of the latest search.
export const lastSearch = () => last;

// filtersOf are those that the address names, of which the hub knows all but the period.
function filtersOf(query) {
  const wanted = Object.fromEntries(new URLSearchParams(query));
  return { text: '', tenant: '', instance: '', status: '', band: '', period: '', ...wanted };
}

function queryOf({ period, ...filters }, more) {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
  if (period) query.set('since', String(Math.floor(Date.now() / 1000 - period)));
  for (const [name, value] of Object.entries(more)) if (value !== null && value !== undefined) query.set(name, value);
  return query;
}

// parts asks for one part after the other until take wants no more. It returns where to go on.
async function parts(path, method, filters, more, take) {
  let cursor = more.cursor ?? null;
  for (let n = 0; n < maxParts; n++) {
    const part = await call(method, `${path}?${queryOf(filters, { ...more, cursor })}`);
    cursor = part.next;
    if (!take(part) || !cursor) break;
  }
  return cursor;
}

export function create(view, query) {
  const narrow = matchMedia('(max-width: 760px)');
  const filters = filtersOf(query);
  let jobs = [];
  let next = null;
  let turn = 0;
  let timer = 0;
  const list = new List({
    label: t('jobs'), height: () => (narrow.matches ? 92 : 52), make: makeRow, open: (j) => { location.hash = link(j.key); }, key: (j) => j.key,
    columns: [t('status'), t('job'), t('reason'), t('instance'), t('created'), t('took')],
  });
  const field = (name, more = {}) => h('input', {
    type: 'search', placeholder: t(`find.${name}`), 'aria-label': t(`find.${name}`), value: filters[name], maxlength: 200, ...more,
    oninput: (event) => { filters[name] = event.target.value.trim(); soon(); },
  });
  const chips = states.map((state) => {
    const chip = h('button.chip', { type: 'button', 'aria-pressed': 'false', onclick: () => { toggle(state); soon(0); } }, t(`state.${state}`));
    return { state, chip };
  });
  const toggle = (state) => {
    const on = new Set(filters.status ? filters.status.split(',') : []);
    if (!on.delete(state)) on.add(state);
    filters.status = states.filter((s) => on.has(s)).join(',');
  };
  const period = h('select.period', { 'aria-label': t('time'), onchange: () => { filters.period = period.value; soon(0); } },
    periods.map(([value, name]) => h('option', { value, selected: value === filters.period }, t(name))));
  const band = h('select.period', { 'aria-label': t('band'), onchange: () => { filters.band = band.value; soon(0); } },
    bands.map((value) => h('option', { value, selected: value === filters.band }, t(value || 'band.any'))));
  const known = h('datalist', { id: 'known-instances' });
  const tenant = field('tenant');
  const bulk = (name, path, in_) => h('button.ghost.word', { type: 'button', onclick: () => act(name, path, in_) }, t(`${name}.found`));
  const cancel = bulk('cancel', 'search/cancel', alive);
  const again = bulk('again', 'search/again', states.filter((s) => !alive.includes(s)));
  const found = h('span.quiet', { role: 'status' });
  const more = h('button.more', { type: 'button', hidden: true, onclick: () => load(true) }, t('more'));
  const nothing = h('h2');
  const help = h('p', {}, t('no.found.help'));
  const empty = h('div.empty', { hidden: true }, nothing, help);
  let failure = '';
  let there = store.connected;
  view.append(h('div.filters', {}, field('text'), tenant, field('instance', { list: 'known-instances' }), known, band, period, chips.map(({ chip }) => chip), cancel, again, found), list.element, empty, more);

  function soon(wait = 300) {
    clearTimeout(timer);
    timer = setTimeout(() => load(false), wait);
  }

  async function load(on) {
    const mine = ++turn;
    last = searchLink(Object.entries(filters).filter(([, value]) => value));
    history.replaceState(null, '', last);
    if (!on) { jobs = []; next = null; }
    const wanted = jobs.length + pageSize;
    let looked = 0;
    text(found, t('looking'));
    failure = '';
    try {
      const cursor = await parts('search', 'GET', filters, { limit: pageSize, cursor: on ? next : null }, (part) => {
        if (mine !== turn) return false;
        const seen = new Set(jobs.map(({ key }) => key));
        jobs.push(...part.jobs.filter(({ key }) => !seen.has(key)));
        looked += part.looked;
        return jobs.length < wanted;
      });
      if (mine !== turn) return;
      next = cursor;
      text(found, next ? t('found.more', { n: num(jobs.length), looked: num(looked) }) : t('found.all', { n: num(jobs.length) }));
    } catch (error) {
      if (mine !== turn) return;
      failure = error.message;
      text(found, jobs.length > 0 ? failure : '');
    }
    draw();
  }

  function draw() {
    show(list.element, jobs.length > 0);
    text(nothing, failure || t(Object.values(filters).some(Boolean) ? 'no.found' : 'no.jobs.yet'));
    show(help, !failure);
    show(empty, jobs.length === 0 && !next);
    show(more, Boolean(next));
    list.show(jobs);
    update();
  }

  // act counts first, says what it will do, and touches nothing that came later than the count.
  async function act(name, path, in_) {
    const status = (filters.status ? filters.status.split(',') : states).filter((s) => in_.includes(s)).join(',');
    const wanted = { ...filters, status, period: '' };
    const since = filters.period ? Math.floor(Date.now() / 1000 - filters.period) : null;
    const until = ((Date.now() + store.me.skew) / 1000).toFixed(3);
    try {
      let count = 0;
      const rest = await parts('search', 'GET', wanted, { limit: 0, since, until }, (part) => { count += part.matched; return true; });
      if (!count) { say(t('no.found')); return; }
      if (!confirm(t(`ask.${name}.found`, { n: `${num(count)}${rest ? '+' : ''}` }))) return;
      let done = 0;
      const failed = [];
      let cursor = null;
      do {
        cursor = await parts(path, 'POST', wanted, { since, until, cursor }, (part) => { done += part.done; failed.push(...part.failed); return true; });
        text(found, t(`did.${name}.found`, { n: num(done) }));
      } while (cursor && done + failed.length < count);
      say(t(`did.${name}.found`, { n: num(done) }));
      if (failed.length) say(t('failed.some', { n: num(failed.length), x: failed[0].error }), true);
    } catch (error) {
      say(`${t('failed')}: ${error.message}`, true);
    }
    load(false);
  }

  function update() {
    if (failure && store.connected && !there) load(false); // the hub is back
    there = store.connected;
    for (const { state, chip } of chips) attr(chip, 'aria-pressed', filters.status.split(',').includes(state));
    show(tenant, store.me.operator);
    const filtered = Object.values(filters).some(Boolean);
    const may = filtered && (store.me.commands || !store.me.operator);
    const wanted = filters.status ? filters.status.split(',') : states;
    show(cancel, may && wanted.some((s) => alive.includes(s)));
    show(again, may && wanted.some((s) => !alive.includes(s)));
    const names = [...store.instances.keys()].sort();
    if (known.children.length !== names.length) known.replaceChildren(...names.slice(0, 500).map((value) => h('option', { value })));
  }
  load(false);
  update();
  return { update, end: () => { turn++; clearTimeout(timer); list.end(); } };
}

function makeRow() {
  const state = h('div.cell-state', { role: 'gridcell' });
  const id = h('a.name.mono');
  const who = h('span.sub');
  const reason = h('div.cell-work', { role: 'gridcell' });
  const instance = h('div.cell-where', { role: 'gridcell' });
  const at = h('div.cell-at.num', { role: 'gridcell' });
  const took = h('div.cell-took.num', { role: 'gridcell' });
  let before = '';
  return {
    element: h('div.row', {}, state, h('div.cell-name', { role: 'gridcell' }, id, who), reason, instance, at, took),
    fill(j) {
      if (before !== j.status) state.replaceChildren(stateBadge(before = j.status));
      text(id, j.id);
      attr(id, 'href', link(j.key));
      attr(id, 'title', j.id);
      text(who, store.me.operator || j.tenant !== store.me.tenant ? j.tenant : '');
      text(reason, said(j.error || j.lost.at(-1) || ''));
      attr(reason, 'title', j.error || null);
      text(instance, j.instance ?? '');
      text(at, moment(j.created_at * 1000));
      const until = j.finished_at ?? (j.status === 'running' ? (Date.now() + store.me.skew) / 1000 : null);
      text(took, j.started_at && until ? short(Math.max(0, until - j.started_at)) : '');
    },
  };
}
