import { attr, h, icon, show, text } from './dom.js';
import { searchLink } from './find.js';
import { call } from './hub.js';
import { List } from './list.js';
import { facts, openPanel } from './panel.js';
import { said } from './reasons.js';
import { moment, span, t } from './words.js';

const every = 10000;
const pictures = { lost: 'again', failed: 'close', sick: 'sick', refused: 'draining' };

export function create(view) {
  const narrow = matchMedia('(max-width: 760px)');
  const list = new List({
    label: t('faults'), height: () => (narrow.matches ? 84 : 48), make: makeRow, open: details, key: (f) => `${f.at} ${f.kind} ${f.job} ${f.instance}`,
    columns: [t('time'), t('kind'), t('reason'), t('instance'), t('job')],
  });
  const empty = h('div.empty', { hidden: true }, icon('idle'), h('h2', {}, t('no.faults')));
  view.append(list.element, empty);
  let ended = false;
  async function load() {
    const all = await call('GET', 'faults').catch(() => null);
    if (ended || !all) return;
    show(list.element, all.length > 0);
    show(empty, all.length === 0);
    list.show(all);
  }
  show(list.element, false);
  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, every);
  return { update() {}, end() { ended = true; clearInterval(timer); list.end(); } };
}

function makeRow() {
  const at = h('div.cell-at.num', { role: 'gridcell' });
  const kind = h('div.cell-kind', { role: 'gridcell' });
  const reason = h('span.what');
  const instance = h('div.cell-where', { role: 'gridcell' });
  const job = h('span.mono.one');
  const who = h('span.sub');
  let before = '';
  return {
    element: h('div.row', {}, at, kind, h('div.cell-work', { role: 'gridcell' }, reason), instance, h('div.cell-name', { role: 'gridcell' }, job, who)),
    fill(f) {
      text(at, t('ago', { x: span(Date.now() - f.at * 1000) }));
      attr(at, 'title', moment(f.at * 1000));
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
