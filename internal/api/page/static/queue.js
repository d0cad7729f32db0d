import { attr, button, h, icon, show, text } from './dom.js';
import { link, searchLink } from './find.js';
import { working } from './fleet.js';
import { fleet, jobs } from './hub.js';
import { List } from './list.js';
import { facts, openPanel } from './panel.js';
import { said } from './reasons.js';
import { now, store } from './store.js';
import { moment, num, span, t } from './words.js';

// maxMoves bounds the requests that one move may take: a job is moved by sending those that
// are to be before it to the front, or those behind it to the end.
const maxMoves = 40;
let filter = '';
let mine = false;
let dragged = null;

const owned = (j) => store.me.commands || j.tenant === store.me.tenant;
const byOrder = (a, b) => (a.order < b.order ? -1 : a.order > b.order ? 1 : 0);

// byPlace has the job that begins first on top, and those without a place, which are paused, at the end.
const byPlace = (a, b) => (a.position ?? Infinity) - (b.position ?? Infinity) || byOrder(a, b);

// waiting are the jobs that wait, in line.
function waiting() { return [...store.jobs.values()].sort(byPlace); }

// running are the jobs that may be seen, by what the instances do.
function running() {
  return [...store.instances.values()].filter((i) => i.job)
    .map((i) => ({ key: i.key, id: i.job, tenant: i.tenant, instance: i }))
    .sort((a, b) => (a.instance.began || Infinity) - (b.instance.began || Infinity));
}

// peers are the jobs among which a job can be moved: only they share its place in line.
function peers(job) {
  return [...store.jobs.values()].filter((j) => j.tenant === job.tenant && j.priority === job.priority && j.band === job.band).sort(byOrder);
}

// move puts a job at a place among its peers.
async function move(job, to) {
  const line = peers(job);
  const from = line.findIndex(({ key }) => key === job.key);
  if (from < 0 || to < 0 || to >= line.length || to === from) return;
  line.splice(to, 0, ...line.splice(from, 1));
  const before = line.slice(0, Math.max(to, from < to ? to : 0) + 1).reverse();
  const behind = line.slice(to);
  const whole = store.jobs.size >= store.counts.own_waiting;
  const forward = whole && behind.length < before.length;
  const steps = forward ? behind : before;
  if (steps.length > maxMoves) {
    await jobs.steer(job, { position: to < from ? 'front' : 'end' }, t('did.move'));
    return;
  }
  for (const [n, j] of steps.entries()) {
    if (!await jobs.steer(j, { position: forward ? 'end' : 'front' }, n === steps.length - 1 ? t('did.move') : '')) return;
  }
}

const place = (job) => peers(job).findIndex(({ key }) => key === job.key);
const cancel = (job) => { if (job && owned(job) && confirm(t('ask.cancel'))) jobs.cancel(job); };

export function create(view) {
  const narrow = matchMedia('(max-width: 760px)');
  const list = new List({
    label: t('queue'), height: () => (narrow.matches ? 128 : 52), make: makeRow, open: details, key: (j) => j.key,
    columns: [t('place'), t('job'), t('status'), t('eta'), t('wait'), h('span.hidden', {}, t('actions'))],
    keys: {
      'Alt+ArrowUp': (job) => job && !job.instance && owned(job) && move(job, place(job) - 1),
      'Alt+ArrowDown': (job) => job && !job.instance && owned(job) && move(job, place(job) + 1),
      Delete: cancel,
    },
  });
  const search = h('input', { type: 'search', placeholder: t('search.jobs'), 'aria-label': t('search.jobs'), value: filter, oninput: () => { filter = search.value.trim().toLowerCase(); update(); } });
  const own = h('button.chip', { type: 'button', 'aria-pressed': String(mine), onclick: () => { mine = !mine; update(); } }, t('own.only'));
  const pauseAll = h('button.ghost.word', {
    type: 'button', onclick: () => {
      const verb = store.counts.paused ? 'resume' : 'pause';
      fleet.all(verb, t(`did.${verb}`));
    },
  });
  const more = h('span.quiet');
  const hub = new URL('..', location.href).href.replace(/\/$/, ''); // a proxy may serve it below a path
  const login = store.me.login ? `export COMFYHUB_USER='${store.me.tenant}' COMFYHUB_PASSWORD=...\n` : '';
  const empty = h('div.empty', {}, h('h2', {}, t('no.jobs')), !store.me.operators_site && [h('p', {}, t('no.jobs.help')), h('pre', { tabindex: '0' }, `${hub}\n${login}comfyhub submit workflow_api.json --hub ${hub} --out pictures`)]);
  const elsewhere = h('div.empty', { hidden: true }, h('h2', {}, t('no.match')), h('p', {}, t('no.match.queue')), h('p', {}, h('a', { onclick: () => { location.hash = searchLink({ text: filter, status: 'queued,running' }); }, href: '#jobs' }, t('search.all'))));
  view.append(h('div.filters', {}, search, own, pauseAll, more, h('span.quiet.hint', {}, t('skip'))), list.element, empty, elsewhere);

  function update() {
    const keep = (j) => (!mine || j.tenant === store.me.tenant) && (!filter || `${j.id} ${j.tenant}`.toLowerCase().includes(filter));
    const seen = [...running(), ...waiting()].filter(keep);
    attr(own, 'aria-pressed', mine);
    show(own, store.me.operator);
    show(pauseAll, store.me.commands);
    text(pauseAll, store.counts.paused ? t('resume.all') : t('pause.all'));
    const rest = store.counts.own_waiting - store.jobs.size;
    text(more, rest > 0 ? t('more.waiting', { n: rest }) : '');
    show(list.element, seen.length > 0);
    const any = store.counts.waiting + store.counts.running > 0;
    show(empty, seen.length === 0 && store.ready && !filter && !(any && mine));
    show(elsewhere, seen.length === 0 && store.ready && Boolean(filter));
    list.show(seen);
  }
  return { update, end: () => list.end() };
}

// why says why a job waits.
function why(job) {
  if (job.paused) return t('paused');
  if (store.counts.paused) return t('queue.paused');
  if (store.counts.tenant_paused && job.tenant === store.me.tenant) return t('you.paused');
  return said(job.why) || t('turn');
}

function makeRow() {
  let job = null;
  const position = h('div.cell-place', { role: 'gridcell' });
  const id = h('span.name.mono');
  const who = h('span.sub');
  const reason = h('span.what');
  const fill = h('i');
  const track = h('div.track', {}, fill);
  const eta = h('div.cell-eta.num', { role: 'gridcell' });
  const since = h('div.cell-since.num', { role: 'gridcell' });
  const steer = (change, done) => () => jobs.steer(job, change(), t(done));
  const top = button('top', t('front'), steer(() => ({ position: 'front' }), 'did.move'));
  const up = button('up', t('moveup'), () => move(job, place(job) - 1));
  const down = button('down', t('movedown'), () => move(job, place(job) + 1));
  const pause = button('pause', t('pause'), () => jobs.steer(job, { paused: !job.paused }, t(job.paused ? 'did.resume' : 'did.pause')));
  const stop = button('close', t('cancel'), () => cancel(job));
  const chip = h('span.tag');
  const element = h('div.row', {
    ondragstart: (event) => { dragged = job; event.dataTransfer.effectAllowed = 'move'; event.dataTransfer.setData('text/plain', job.id); },
    ondragend: () => { dragged = null; element.classList.remove('over'); },
    ondragover: (event) => {
      if (!dragged || !job || job.instance || dragged.key === job.key || place(dragged) < 0 || !peers(dragged).some(({ key }) => key === job.key)) return;
      event.preventDefault();
      element.classList.add('over');
    },
    ondragleave: () => element.classList.remove('over'),
    ondrop: (event) => {
      event.preventDefault();
      element.classList.remove('over');
      if (dragged && job) move(dragged, place(job));
    },
  }, position, h('div.cell-name', { role: 'gridcell' }, id, h('span.line', {}, who, chip)), h('div.cell-work', { role: 'gridcell' }, reason, track), eta, since, h('div.cell-acts', { role: 'gridcell' }, top, up, down, pause, stop));
  let paused = null;
  let runs = null;
  return {
    element, fill(j) {
      job = j;
      const i = j.instance;
      const steers = !i && owned(j);
      if (runs !== Boolean(i) || !i) {
        runs = Boolean(i);
        position.replaceChildren(i ? icon('busy') : j.position === null ? '—' : num(j.position + 1));
        position.classList.toggle('busy', runs);
      }
      text(id, j.id);
      attr(id, 'title', j.id);
      text(who, store.me.operator || j.tenant !== store.me.tenant ? j.tenant : '');
      const marks = [j.priority ? `${t('priority')} ${j.priority > 0 ? '+' : ''}${j.priority}` : '', j.band && j.band !== 'normal' ? t(j.band) : ''].filter(Boolean).join(' · ');
      text(chip, marks);
      show(chip, marks !== '');
      text(reason, i ? `${i.name} · ${working(i)}` : why(j));
      attr(reason, 'class', i ? 'what' : 'what quiet');
      show(track, runs);
      if (i) fill.style.width = `${(i.progress ?? 0) * 100}%`;
      const end = i ? i.eta : j.eta;
      text(eta, end ? span(Math.max(end - now(), 0)) : '');
      text(since, i ? (i.began ? span(now() - i.began) : '') : span(now() - j.created));
      for (const b of [top, up, down, pause]) show(b, steers);
      show(stop, owned(j));
      attr(element, 'draggable', steers ? 'true' : null);
      if (!i && paused !== j.paused) {
        paused = j.paused;
        pause.replaceChildren(icon(paused ? 'play' : 'pause'));
        attr(pause, 'aria-label', t(paused ? 'resume' : 'pause'));
        attr(pause, 'title', t(paused ? 'resume' : 'pause'));
      }
    },
  };
}

function details(job, row) {
  openPanel(job.id, (body) => {
    const top = h('div');
    const candidates = h('div');
    body.append(top, h('p', {}, h('a', { href: link(job.key) }, t('page.of'))), candidates);
    const draw = (e) => {
      top.replaceChildren(facts([
        [t('why'), said(e?.reason) || (job.instance ? '' : why(job))], [t('user'), job.tenant], [t('instance'), job.instance?.name],
        [t('eta'), e?.eta ? span(e.eta * 1000) : ''], [t('priority'), job.priority ? String(job.priority) : ''], [t('band'), job.band && t(job.band)],
        [t('attempts'), job.attempts ? String(job.attempts) : ''], [t('created'), job.created ? moment(job.created) : ''],
      ]));
      if (!e?.instances?.length) return;
      candidates.replaceChildren(h('h3', {}, t('why2')), h('ul.candidates', {}, e.instances.slice(0, 100).map((c) => h('li', {},
        h('span.name', {}, c.name), h('span.sub', {}, [said(c.why), c.lacks.slice(0, 5).join(', ')].filter(Boolean).join(': '))))));
    };
    draw(null);
    jobs.explain(job).then(draw, () => {});
  }, row);
}
