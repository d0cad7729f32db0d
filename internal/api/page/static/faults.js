import { attr, h, icon, show, text, trouble } from './dom.js';
import { searchLink } from './find.js';
import { call } from './hub.js';
import { List } from './list.js';
import { facts, openPanel } from './panel.js';
import { said } from './reasons.js';
import { moment, num, span, t } from './words.js';

const every = 10000;
const pictures = { lost: 'again', failed: 'close', sick: 'sick', refused: 'draining' };
const kinds = Object.keys(pictures);
let filter = '';
let only = '';

function matches(f) {
  return (!only || f.kind === only)
    && (!filter || [f.reason, said(f.reason), f.instance, f.tenant, f.job].some((value) => value?.toLowerCase().includes(filter)));
}

export function create(view) {
  const narrow = matchMedia('(max-width: 760px)');
  const list = new List({
    label: t('faults'), height: () => (narrow.matches ? 104 : 48), make: makeRow, open: details, key: (f) => `${f.at} ${f.kind} ${f.job} ${f.instance}`,
    columns: [t('time'), t('kind'), t('reason'), t('instance'), t('job')],
  });
  const empty = h('div.empty', { hidden: true }, icon('idle'), h('h2', {}, t('no.faults')));
  const none = h('div.empty', { hidden: true }, h('p', {}, t('no.match')));
  const failed = trouble();
  const search = h('input', { type: 'search', placeholder: t('search.faults'), 'aria-label': t('search.faults'), value: filter, oninput: () => { filter = search.value.trim().toLowerCase(); draw(); } });
  const chips = kinds.map((kind) => {
    const number = h('span.n');
    return { kind, number, chip: h('button.chip', { type: 'button', 'aria-pressed': 'false', onclick: () => { only = only === kind ? '' : kind; draw(); } }, icon(pictures[kind]), h('span', {}, t(`kind.${kind}`)), number) };
  });
  const filters = h('div.filters', { hidden: true }, search, chips.map(({ chip }) => chip));
  view.append(filters, list.element, empty, none, failed.element);
  let all = null;
  let ended = false;
  function draw() {
    if (all === null) return;
    const seen = all.filter(matches);
    for (const { kind, chip, number } of chips) {
      const count = all.filter((f) => f.kind === kind).length;
      show(chip, count > 0 || only === kind);
      attr(chip, 'aria-pressed', only === kind);
      text(number, num(count));
    }
    show(filters, all.length > 0);
    show(list.element, seen.length > 0);
    show(empty, all.length === 0);
    show(none, all.length > 0 && seen.length === 0);
    list.show(seen);
  }
  async function load() {
    const read = await call('GET', 'faults').catch((error) => error);
    if (ended) return;
    const wrong = read instanceof Error;
    failed.say(wrong && all === null ? read : null);
    if (wrong) return;
    all = read;
    draw();
  }
  show(list.element, false);
  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, every);
  return { update() {}, end() { ended = true; clearInterval(timer); list.end(); } };
}

function makeRow() {
  const ago = h('span.num');
  const clock = h('span.sub.num');
  const kind = h('div.cell-kind', { role: 'gridcell' });
  const reason = h('span.what');
  const instance = h('div.cell-where', { role: 'gridcell' });
  const job = h('span.mono.one');
  const who = h('span.sub');
  let before = '';
  return {
    element: h('div.row', {}, h('div.cell-at', { role: 'gridcell' }, ago, clock), kind, h('div.cell-work', { role: 'gridcell' }, reason), instance, h('div.cell-name', { role: 'gridcell' }, job, who)),
    fill(f) {
      text(ago, t('ago', { x: span(Date.now() - f.at * 1000) }));
      text(clock, moment(f.at * 1000));
      if (before !== f.kind) kind.replaceChildren(h(`span.badge.${before = f.kind}`, {}, icon(pictures[f.kind] ?? 'sick'), h('span', {}, t(`kind.${f.kind}`))));
      text(reason, said(f.reason));
      attr(reason, 'title', f.reason);
      text(instance, f.instance ?? '');
      text(job, f.job ?? '');
      text(who, f.tenant ?? '');
    },
  };
}

function details(f, row) {
  openPanel(t(`kind.${f.kind}`), (body) => {
    body.append(facts([[t('time'), moment(f.at * 1000)], [t('reason'), said(f.reason)], [t('instance'), f.instance && h('a', { href: searchLink({ instance: f.instance }) }, f.instance)], [t('job'), f.job && h('a', { href: searchLink({ text: f.job }) }, f.job)], [t('user'), f.tenant]]));
  }, row);
}
