import { attr, h, icon, show, text } from './dom.js';
import { link } from './find.js';
import { fleet, jobs } from './hub.js';
import { List } from './list.js';
import { facts, openPanel } from './panel.js';
import { said } from './reasons.js';
import { spare } from './spare.js';
import { now, store } from './store.js';
import { clock, gigabytes, gpuName, modelNames, moment, percent, short, span, t } from './words.js';

const states = ['busy', 'idle', 'foreign', 'draining', 'sick', 'offline'];
let filter = '';
let only = '';

// badge shows a state by colour, shape and word.
export function badge(state) { return h(`span.badge.${state}`, {}, icon(state), h('span', {}, t(state))); }

function matches(i) {
  return (!only || i.state === only)
    && (!filter || [i.name, i.gpu, i.models, i.tenant, i.job, i.version, i.agent].some((value) => value?.toLowerCase().includes(filter)));
}

// able says for which instances there is a verb.
const able = {
  drain: (i) => !i.drained && i.state !== 'offline', resume: (i) => i.drained || i.aside,
  restart: (i) => Boolean(i.agent) && i.state !== 'offline', forget: (i) => i.state === 'offline',
};

const order = new Intl.Collator(undefined, { numeric: true });

// joining says how an instance comes into the fleet: with commands that work as they stand.
function joining() {
  const [, host, port] = /^(.*):(\d+)$/.exec(store.me.join) ?? [];
  if (!port) return [h('p', {}, t(store.me.sees_all ? 'no.gossip' : 'no.instances.yours'))];
  const own = /^(127\.|localhost$|\[::1\]$)/.test(host);
  const at = own || (host && !/^(0\.0\.0\.0|\[::\])$/.test(host)) ? host : location.hostname;
  const key = store.me.join_keyed ? 'export COMFYHUB_GOSSIP_KEY=...\n' : '';
  return [h('p', {}, t(own ? 'no.instances.here' : 'no.instances.help')), h('pre', { tabindex: '0' }, `${key}agent run --join ${at}:${port}`), h('p', {}, t(key ? 'no.instances.key' : own ? 'no.instances.more' : 'no.instances.found'))];
}

export function create(view) {
  const narrow = matchMedia('(max-width: 760px)');
  const list = new List({
    label: t('fleet'), height: () => (narrow.matches ? 112 : 64), make: makeRow, open: details, key: (i) => i.name,
    columns: [t('instance'), t('state'), t('work'), t('model'), t('memory'), t('up')],
  });
  const chips = states.map((state) => {
    const number = h('span.n');
    const chip = h('button.chip', { type: 'button', 'aria-pressed': 'false', onclick: () => { only = only === state ? '' : state; update(); } }, icon(state), h('span', {}, t(state)), number);
    chip.classList.add(state);
    return { state, chip, number };
  });
  const search = h('input', { type: 'search', placeholder: t('search'), 'aria-label': t('search'), value: filter, oninput: () => { filter = search.value.trim().toLowerCase(); update(); } });
  const empty = h('div.empty');
  // The verbs for all that the filter shows, such as a machine with several instances.
  let found = [];
  const together = ['drain', 'resume', 'restart', 'forget'].map((verb) => ({ verb, button: h('button.ghost.word', { type: 'button', hidden: true, onclick: () => all(verb) }) }));
  view.append(h('div.filters', {}, search, chips.map(({ chip }) => chip), together.map(({ button }) => button)), list.element, empty);
  const extra = spare();
  list.element.before(extra.element);

  async function all(verb) {
    const meant = found.filter(able[verb]);
    const runs = verb === 'restart' ? meant.filter((i) => i.state === 'busy').length : 0;
    if (!meant.length || !confirm([`${t(verb)}: ${meant.slice(0, 12).map((i) => i.name).join(', ')}${meant.length > 12 ? ` … (${meant.length})` : ''}?`, runs ? t('ask.runs', { n: runs }) : ''].filter(Boolean).join('\n'))) return;
    for (const i of meant) if (!await fleet.command(verb, i.name, `${i.name}: ${t(`did.${verb}`)}`)) return;
  }

  function update() {
    extra.update();
    const all = [...store.instances.values()];
    for (const { state, chip, number } of chips) {
      const n = all.filter((i) => i.state === state).length;
      text(number, String(n));
      attr(chip, 'aria-pressed', only === state);
      show(chip, n > 0 || only === state);
    }
    // By name, so that no row moves while one looks at it; the chips find what needs care.
    const seen = all.filter(matches).sort((a, b) => order.compare(a.name, b.name));
    found = filter || only ? seen : [];
    for (const { verb, button } of together) {
      const n = found.filter(able[verb]).length;
      show(button, store.me.commands && n > 1);
      text(button, `${t(verb)} (${n})`);
    }
    show(list.element, seen.length > 0);
    show(empty, seen.length === 0 && store.ready);
    if (!seen.length) {
      if (all.length) {
        empty.replaceChildren(h('p', {}, t('no.match')));
        delete empty.dataset.join;
      }
      else if (empty.dataset.join !== store.me.join) { // what is there may be about to be copied
        empty.replaceChildren(h('h2', {}, t('no.instances')), ...joining());
        empty.dataset.join = store.me.join;
      }
    }
    list.show(seen);
  }
  return { update, end() { extra.end(); list.end(); } };
}

function makeRow() {
  const name = h('span.name');
  const gpu = h('span.sub');
  const state = h('div.cell-state', { role: 'gridcell' });
  const what = h('span.what');
  const who = h('span.sub');
  const progress = h('i');
  const track = h('div.track', {}, progress);
  const model = h('span.one');
  const memory = h('span.num');
  const used = h('i');
  const usage = h('div.track.thin', {}, used);
  const up = h('span.num');
  const fault = h('span.sub.bad');
  const element = h('div.row', {},
    h('div.cell-name', { role: 'gridcell' }, name, gpu), state,
    h('div.cell-work', { role: 'gridcell' }, what, track, h('span.line', {}, who, fault)),
    h('div.cell-model', { role: 'gridcell' }, model),
    h('div.cell-memory', { role: 'gridcell' }, memory, usage),
    h('div.cell-up', { role: 'gridcell' }, up));
  let before = '';
  return {
    element, fill(i) {
      text(name, i.name);
      text(gpu, gpuName(i.gpu) || i.kind);
      if (before !== i.state) state.replaceChildren(badge(before = i.state));
      const runs = Boolean(i.job);
      text(what, runs ? working(i) : i.state === 'busy' ? t('someone') : i.drained ? '' : said(i.reason) || said(i.load) || others(i));
      attr(what, 'class', runs ? 'what' : 'what quiet');
      show(track, runs);
      if (runs) progress.style.width = `${(i.progress ?? 0) * 100}%`;
      text(who, runs ? [store.me.operator || i.tenant !== store.me.tenant ? i.tenant : '', i.began ? span(now() - i.began) : ''].filter(Boolean).join(' · ') : '');
      text(model, modelNames(i.models));
      attr(model, 'title', i.models || null);
      const known = i.vram_total > 0 && i.state !== 'offline';
      text(memory, known ? `${gigabytes(i.vram_total - i.vram_free)} / ${gigabytes(i.vram_total)} GB` : '');
      show(usage, known);
      if (known) used.style.width = `${100 * (1 - i.vram_free / i.vram_total)}%`;
      text(up, i.boot > 0 ? short((now() - i.boot) / 1000) : '');
      const wrong = i.fault_at && now() - i.fault_at < 3600e3 ? i.fault : i.disk_size && i.disk_free < i.disk_size / 20 ? t('disk.low', { x: gigabytes(i.disk_free) }) : '';
      text(fault, said(wrong));
      attr(fault, 'title', wrong || i.fault || null);
    },
  };
}

// others says what other programs take of the GPU.
function others(i) {
  return [i.others_memory ? t('others.hold', { x: gigabytes(i.others_memory) }) : '', i.others_use ? t('others.use', { x: i.others_use }) : ''].filter(Boolean).join(' · ');
}

// working says what an instance does for a job that may be seen.
export function working(i) {
  const node = i.class || (i.node ? `${t('node')} ${i.node}` : t('preparing'));
  return i.progress > 0 && store.connected ? `${node} · ${percent(i.progress)}` : node;
}

function details(instance, row) {
  const { name } = instance;
  openPanel(name, (body) => {
    const picture = h('img.preview', { alt: t('preview'), hidden: true });
    const none = h('p.quiet', {}, t('no.preview'));
    const place = h('div');
    const verbs = h('div.verbs');
    body.append(h('div.stage', {}, picture, none), place, verbs);
    let shape = '';
    const operate = (i) => {
      const b = (label, act, bad) => h(bad ? 'button.danger' : 'button', { type: 'button', onclick: act }, label);
      const list = [];
      if (i.job && (store.me.commands || i.tenant === store.me.tenant)) list.push(b(t('cancel'), () => confirm(t('ask.cancel')) && jobs.cancel({ id: i.job, tenant: i.tenant }), true));
      if (store.me.commands) {
        if (i.aside && !i.drained) list.push(b(t('trust'), () => fleet.command('resume', name, t('did.resume'))));
        if (i.drained) list.push(b(t('resume'), () => fleet.command('resume', name, t('did.resume'))));
        else if (i.state !== 'offline') list.push(b(t('drain'), () => fleet.command('drain', name, t('did.drain'))));
        if (i.agent && i.state !== 'offline') list.push(b(t('restart'), () => confirm(t('ask.restart')) && fleet.command('restart', name, t('did.restart')), true));
        if (i.state === 'offline') list.push(b(t('forget'), () => fleet.command('forget', name, t('did.forget'))));
      }
      verbs.replaceChildren(...list);
    };
    // The latest picture, as long as the panel is open. It is fetched and not linked to: the
    // first answer for a run is that there is none.
    let url = '';
    let ended = false;
    const look = async () => {
      const i = store.instances.get(name);
      if (!i?.job || document.hidden) return;
      const answer = await fetch(`preview?instance=${encodeURIComponent(name)}`).catch(() => null);
      if (!answer?.ok) return;
      const blob = await answer.blob();
      if (ended) return; // nobody would let go of the picture
      const next = URL.createObjectURL(blob);
      URL.revokeObjectURL(url);
      picture.src = url = next;
      show(picture, true);
      show(none, false);
    };
    look();
    const timer = setInterval(look, 1000);
    const update = () => {
      const i = store.instances.get(name);
      if (!i) return;
      show(picture, Boolean(i.job) && Boolean(url));
      show(none, !i.job || !url);
      text(none, i.job ? t('no.preview') : t(i.state));
      place.replaceChildren(badge(i.state), facts([
        [t('work'), i.job ? working(i) : ''], [t('job'), i.job && h('a', { href: link(i.key) }, i.job)], [t('user'), i.job ? i.tenant : ''],
        [t('elapsed'), i.job && i.began ? span(now() - i.began) : ''], [t('eta'), i.job && i.eta ? span(Math.max(i.eta - now(), 0)) : ''], [t('reason'), said(i.reason)], [t('load'), [said(i.load), others(i)].filter(Boolean).join(' · ')],
        [t('model'), i.models], ['GPU', gpuName(i.gpu)], [t('memory'), i.vram_total ? `${gigabytes(i.vram_free)} GB ${t('free')} ${t('of')} ${gigabytes(i.vram_total)} GB` : ''],
        [t('restarts'), i.restarts ? [i.restarts, i.restart_at ? t('restart.at', { x: clock(i.restart_at) }) : '', i.restart_error ? t('restart.failed', { x: i.restart_error }) : ''].filter(Boolean).join(' · ') : ''],
        [t('disk'), i.disk_size ? `${gigabytes(i.disk_free)} GB ${t('free')} ${t('of')} ${gigabytes(i.disk_size)} GB` : ''],
        [t('started'), i.boot > 0 ? moment(i.boot) : ''], [t('last.seen'), i.last_seen ? moment(i.last_seen) : ''],
        [t('fault'), i.fault ? `${said(i.fault)} (${t('ago', { x: span(now() - i.fault_at) })})` : ''], [t('version'), i.version], [t('kind'), i.kind], [t('reserved'), i.reserved], [t('agent'), i.agent], [t('address'), i.url],
      ]));
      const now2 = [i.state, i.job, i.drained, i.aside, store.me.commands].join();
      if (now2 !== shape) { shape = now2; operate(i); }
    };
    update();
    update.end = () => { ended = true; clearInterval(timer); URL.revokeObjectURL(url); };
    return update;
  }, row);
}
