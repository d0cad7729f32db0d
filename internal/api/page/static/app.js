import { attr, button, h, text } from './dom.js';
import * as fleet from './fleet.js';
import * as queue from './queue.js';
import * as jobs from './find.js';
import * as job from './job.js';
import * as results from './results.js';
import * as trends from './trends.js';
import * as faults from './faults.js';
import { closePanel, refreshPanel } from './panel.js';
import { connect, onChange, store } from './store.js';
import { count, language, languages, num, percent, remember, remembered, speak, t, time } from './words.js';

// Results are ComfyUI's, of which the operators' site has nothing.
const all = { fleet, queue, jobs, results, trends, faults };
let views = all;
const view = document.getElementById('view');
let current = null;
let shown = null;
let connection;
let cells;

// address is what the URL names: a view, and what it is to show, such as #jobs?status=failed or #job/KEY.
function address() {
  const [, name, more = ''] = /^#(\w+)[/?]?(.*)$/.exec(location.hash) ?? [];
  if (name === 'job' && more) return { name: 'jobs', module: job, more: decodeURIComponent(more) };
  return views[name] ? { name, module: views[name], more } : { name: 'fleet', module: views.fleet, more: '' };
}

function chosen() { return address().name; }

// frame draws what is around the views, in the language of the page.
function frame() {
  document.documentElement.lang = language;
  document.getElementById('tabs').replaceChildren(...Object.keys(views).map((name) => h('a.tab', {
    role: 'tab', id: `tab-${name}`, href: `#${name}`, 'aria-controls': 'view', 'aria-selected': 'false', tabindex: '-1',
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const names = Object.keys(views);
      location.hash = names[(names.indexOf(name) + step + names.length) % names.length];
      requestAnimationFrame(() => document.getElementById(`tab-${chosen()}`).focus());
      event.preventDefault();
    },
  }, t(name))));
  connection = h('span.connection', { role: 'status' });
  document.getElementById('tools').replaceChildren(connection, themes(), h('select.language', {
    'aria-label': t('language'), onchange: (event) => { speak(event.target.value); remember('language', language); restart(); },
  }, Object.entries(languages).map(([name, label]) => h('option', { value: name, selected: name === language, lang: name }, label))));
  const cell = (name) => {
    const value = h('span.value');
    const more = h('span.more');
    return { element: h('div.cell', {}, h('span.label', {}, t(name)), value, more), value, more };
  };
  cells = { instances: cell('instances'), running: cell('running'), waiting: cell('waiting'), use: cell('gpu.use') };
  cells.bar = h('div.bar', { role: 'img' });
  document.getElementById('summary').replaceChildren(...['instances', 'running', 'waiting', 'use'].map((name) => cells[name].element));
  cells.instances.element.append(cells.bar);
}

function themes() {
  const order = ['auto', 'light', 'dark'];
  const pictures = { auto: 'auto', light: 'sun', dark: 'moon' };
  const now = () => remembered('theme') ?? 'auto';
  const b = button(pictures[now()], `${t('theme')}: ${t(`theme.${now()}`)}`, () => {
    const next = order[(order.indexOf(now()) + 1) % order.length];
    remember('theme', next);
    paint();
    b.replaceWith(themes());
    document.querySelector('.tools .theme').focus();
  });
  b.classList.add('theme');
  return b;
}

function paint() {
  const theme = remembered('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// open shows the view that the address names.
function open() {
  const { name, module, more } = address();
  if (module === results && !store.ready) return; // this may be the operators' site, which has none
  for (const other of Object.keys(views)) {
    const tab = document.getElementById(`tab-${other}`);
    tab.setAttribute('aria-selected', other === name);
    tab.tabIndex = other === name ? 0 : -1;
  }
  const at = module === job ? `job ${more}` : name;
  if (shown === at && name !== 'jobs') return; // another search has another address
  current?.end?.();
  closePanel();
  shown = at;
  view.className = `view ${name}`;
  view.setAttribute('role', 'tabpanel');
  view.setAttribute('aria-labelledby', `tab-${name}`);
  view.replaceChildren();
  current = module.create(view, more);
  document.title = `${module === job ? more : t(name)} · ComfyHub`;
  update();
}

function restart() {
  shown = null;
  frame();
  open();
}

const states = ['busy', 'idle', 'foreign', 'draining', 'sick', 'offline'];

// elsewhere tells operators where they may act, if not here.
function elsewhere() {
  const note = document.getElementById('elsewhere');
  const needed = store.me.operator && !store.me.commands;
  if (note.hidden === !needed && note.lang === language) return;
  note.hidden = !needed;
  note.lang = language;
  if (!needed) return;
  if (!store.me.operators_at) {
    note.replaceChildren(t('operators.none'));
    return;
  }
  // Without a host it is at each of the hub's.
  const at = `${store.me.operators_at.replace(/\/\/(?=:|$)/, `//${location.hostname}`)}/hub/`;
  note.replaceChildren(t('operators.at'), ' ', h('a', { href: at, rel: 'noopener' }, at));
}

// source says where the page of ComfyUI comes from: whoever controls that controls what everybody opens.
function source() {
  const line = document.getElementById('source');
  const { from, name } = store.web_ui;
  line.hidden = !from || (!name && store.instances.size === 0); // of no instance, none may serve it
  text(line, from && (name ? `${t(`webui.${from}`)} ${name}` : t('webui.none')));
}

function update() {
  if (store.me.operators_site !== (views !== all)) {
    const { results: _, ...rest } = all;
    views = store.me.operators_site ? rest : all;
    restart();
    return;
  }
  if (shown === null && store.ready) {
    open();
    return;
  }
  const warning = document.getElementById('warning');
  const trouble = [store.refused && t('operators.only'), store.strangers && t('strangers'), store.me.open && t('open.hub')].filter(Boolean).join(' ');
  warning.hidden = !trouble;
  text(warning, trouble);
  elsewhere();
  source();
  const away = store.ready && !store.connected;
  text(connection, store.refused ? '' : store.connected ? t('connected') : away ? t('away', { x: time(store.heard) }) : t('lost'));
  connection.classList.toggle('on', store.connected);
  document.body.classList.toggle('away', away); // what is shown is not how things are now
  const fleetNow = [...store.instances.values()];
  const by = Object.fromEntries(states.map((state) => [state, fleetNow.filter((i) => i.state === state).length]));
  text(cells.instances.value, num(fleetNow.length));
  attr(cells.instances.more, 'title', states.filter((state) => by[state]).map((state) => count(`n.${state}`, by[state])).join(' · '));
  text(cells.instances.more, states.filter((state) => by[state]).map((state) => count(`n.${state}`, by[state])).join(' · '));
  cells.bar.setAttribute('aria-label', cells.instances.more.textContent || t('instances'));
  if (cells.bar.children.length !== states.length) cells.bar.replaceChildren(...states.map((state) => h(`i.${state}`)));
  states.forEach((state, n) => { cells.bar.children[n].style.flexGrow = by[state]; });
  const others = !store.me.operator && store.counts.waiting + store.counts.running !== store.counts.own_waiting + store.counts.own_running;
  for (const name of ['running', 'waiting']) {
    text(cells[name].value, num(store.counts[name]));
    text(cells[name].more, others ? `${num(store.counts[`own_${name}`])} ${t('own')}` : '');
  }
  if (store.counts.paused) text(cells.waiting.more, t('queue.paused'));
  else if (store.counts.tenant_paused) text(cells.waiting.more, t('you.paused'));
  // The places of a serverless endpoint are no GPUs that stand idle.
  const gpus = fleetNow.filter((i) => i.kind !== 'overflow' && ['busy', 'idle', 'foreign'].includes(i.state));
  text(cells.use.value, gpus.length && !away ? percent(gpus.filter((i) => i.state === 'busy').length / gpus.length) : '—');
  current?.update?.();
  refreshPanel();
}

paint();
frame();
open();
addEventListener('hashchange', open);
onChange(update);
setInterval(() => { if (!document.hidden) update(); }, 1000);
connect();
