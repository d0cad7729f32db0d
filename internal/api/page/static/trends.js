import { h, s, show, text, trouble } from './dom.js';
import { call } from './hub.js';
import { clock, num, percent, short, t } from './words.js';

const every = 30000;
const outcomes = ['done', 'failed', 'cancelled', 'lost'];
const labels = { done: 'done', failed: 'job.failed', cancelled: 'cancelled', lost: 'lostruns' };
const day = 24 * 3600e3;
const wide = 15 * 60e3;
const box = { width: 720, height: 200, left: 52, right: 8, top: 10, bottom: 26 }; // width is that of the plots, so that their texts can be read

export function create(view) {
  const plots = [plot('throughput', outcomes.map((name) => [name, t(labels[name])])), plot('waits', [['p50', t('p50')], ['p95', t('p95')]]), plot('use', []), plot('switches', [['p50', t('switches.saved')], ['p95', t('switches.made')]])];
  const empty = h('div.empty', { hidden: true }, h('h2', {}, t('no.trends')));
  const failed = trouble();
  view.append(h('div.scroll.plots', { tabindex: '0', role: 'region', 'aria-label': t('trends') }, plots.map(({ element }) => element), empty, failed.element));
  let ended = false;
  let loaded = null;

  async function load() {
    const answer = await call('GET', 'trends').catch((error) => error);
    if (ended) return;
    failed.say(answer instanceof Error && !loaded ? answer : null);
    if (!answer?.buckets) return;
    loaded = answer;
    draw();
  }

  function draw() {
    const { buckets, seconds } = loaded;
    show(empty, buckets.length === 0);
    for (const p of plots) show(p.element, buckets.length > 0);
    if (!buckets.length) return;
    box.width = widthOf(plots[0]);
    const to = Math.max(buckets.at(-1).at * 1000 + seconds * 1000, Date.now());
    // A young fleet gets a scale on which something can be seen.
    const from = Math.max(to - day, Math.min(buckets[0].at * 1000, to - 3600e3));
    bars(plots[0], buckets, from, to);
    lines(plots[1], buckets, from, to, ['wait_p50', 'wait_p95'], short);
    lines(plots[2], buckets, from, to, ['use'], percent, 1);
    lines(plots[3], buckets, from, to, ['model_switches_saved', 'model_switches'], num, null, 4);
  }
  load();
  const resized = new ResizeObserver(() => { if (loaded && widthOf(plots[0]) !== box.width) draw(); });
  resized.observe(view);
  const timer = setInterval(() => { if (!document.hidden) load(); }, every);
  return { update() {}, end() { ended = true; clearInterval(timer); resized.disconnect(); } };
}

const widthOf = ({ picture }) => Math.max(240, Math.round(picture.getBoundingClientRect().width));

function plot(name, legend) {
  const picture = s('svg', { role: 'img', class: `plot ${name}` });
  const now = h('span.value');
  const tip = h('span.quiet');
  const element = h('section.plotbox', { hidden: true }, h('h2', {}, t(name)), h('div.now', {}, now, tip),
    picture, h('div.legend', {}, legend.map(([kind, label]) => h('span', {}, h(`i.${kind}`), label))));
  return { element, picture, now, tip, name };
}

const x = (at, from, to) => box.left + (at - from) / (to - from) * (box.width - box.left - box.right);
const y = (value, top) => box.height - box.bottom - value / top * (box.height - box.top - box.bottom);

// nice is a round number not below another one, and round with every half of it. Times are in seconds.
const times = [1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14400, 36000, 86400];
function nice(value, steps = []) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [...steps, ...[1, 2, 4, 10].map((step) => step * power)].find((step) => step >= value);
}

function axes(picture, from, to, top, format) {
  const parts = [];
  picture.setAttribute('viewBox', `0 0 ${box.width} ${box.height}`);
  for (let n = 0; n <= 4; n += 2) {
    const value = top * n / 4;
    parts.push(s('line', { x1: box.left, x2: box.width - box.right, y1: y(value, top), y2: y(value, top), class: 'rule' }),
      s('text', { x: box.left - 8, y: y(value, top) + 4, class: 'tick end' }, format(value)));
  }
  const step = [5, 10, 15, 30, 60, 120, 240].map((m) => m * 60e3).find((ms) => (to - from) / ms <= Math.min(7, box.width / 60)) ?? 4 * 3600e3;
  const zone = new Date(from).getTimezoneOffset() * 60e3;
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to && x(at, from, to) < box.width - 24; at += step) {
    parts.push(s('text', { x: x(at, from, to), y: box.height - 6, class: 'tick' }, clock(at)));
  }
  picture.replaceChildren(...parts);
}

// hover shows what is at the pointer.
function hover(p, from, to, points) {
  const mark = s('line', { y1: box.top, y2: box.height - box.bottom, class: 'mark', visibility: 'hidden' });
  p.picture.append(mark);
  p.picture.onpointermove = (event) => {
    const frame = p.picture.getBoundingClientRect();
    const at = from + ((event.clientX - frame.left) / frame.width * box.width - box.left) / (box.width - box.left - box.right) * (to - from);
    const near = points.reduce((best, point) => (Math.abs(point.at - at) < Math.abs(best.at - at) ? point : best), points[0]);
    if (!near) return;
    mark.setAttribute('x1', x(near.at, from, to));
    mark.setAttribute('x2', x(near.at, from, to));
    mark.setAttribute('visibility', 'visible');
    text(p.tip, `${clock(near.at)} · ${near.label}`);
  };
  p.picture.onpointerleave = () => {
    mark.setAttribute('visibility', 'hidden');
    text(p.tip, '');
  };
}

function bars(p, buckets, from, to) {
  const sums = new Map();
  for (const b of buckets) {
    const at = Math.floor(b.at * 1000 / wide) * wide;
    if (at + wide < from) continue;
    const sum = sums.get(at) ?? { at, done: 0, failed: 0, cancelled: 0, lost: 0 };
    for (const name of outcomes) sum[name] += b[name];
    sums.set(at, sum);
  }
  const all = [...sums.values()];
  const top = nice(Math.max(4, ...all.map((sum) => outcomes.reduce((n, name) => n + sum[name], 0))));
  axes(p.picture, from, to, top, (value) => num(value));
  const width = Math.max(1.5, x(from + wide, from, to) - x(from, from, to) - 2);
  for (const sum of all) {
    let below = 0;
    for (const name of outcomes) {
      if (!sum[name]) continue;
      const left = Math.max(box.left, x(sum.at, from, to) + 1);
      p.picture.append(s('rect', { x: left, width: Math.max(0, Math.min(x(sum.at, from, to) + 1 + width, box.width - box.right) - left), y: y(below + sum[name], top), height: y(below, top) - y(below + sum[name], top), rx: 1.5, class: name }));
      below += sum[name];
    }
  }
  const words = (sum) => outcomes.filter((name) => sum[name]).map((name) => `${num(sum[name])} ${t(labels[name])}`).join(', ') || '0';
  const total = all.reduce((sum, b) => Object.fromEntries(outcomes.map((name) => [name, (sum[name] ?? 0) + b[name]])), {});
  text(p.now, num(total.done ?? 0));
  p.picture.setAttribute('aria-label', `${t(p.name)}: ${words(total)}`);
  hover(p, from, to, all.map((sum) => ({ at: sum.at + wide / 2, label: words(sum) })));
}

function lines(p, buckets, from, to, names, format, fixed, least = 1) {
  const known = buckets.filter((b) => b.at * 1000 >= from && names.some((name) => b[name] !== null));
  const top = fixed ?? nice(Math.max(least, ...known.flatMap((b) => names.map((name) => b[name] ?? 0))), format === short ? times : []);
  axes(p.picture, from, to, top, format);
  for (const name of names) {
    // A gap in what is known is a gap in the line.
    const runs = [[]];
    for (const b of buckets) {
      const last = runs.at(-1).at(-1);
      if (b[name] === null || (last && b.at - last.at > 900)) { if (runs.at(-1).length) runs.push([]); }
      if (b[name] !== null && b.at * 1000 >= from) runs.at(-1).push(b);
    }
    for (const run of runs.filter((r) => r.length)) {
      const points = run.map((b) => `${x(b.at * 1000, from, to).toFixed(1)},${y(b[name], top).toFixed(1)}`);
      if (names.length === 1) p.picture.append(s('polygon', { points: `${points[0].split(',')[0]},${y(0, top)} ${points.join(' ')} ${points.at(-1).split(',')[0]},${y(0, top)}`, class: `area ${name}` }));
      p.picture.append(run.length > 1 ? s('polyline', { points: points.join(' '), class: `line ${name}` }) : s('circle', { cx: points[0].split(',')[0], cy: points[0].split(',')[1], r: 3, class: `dot ${name}` }));
    }
  }
  const words = (b) => names.map((name) => (b[name] === null ? '—' : format(b[name]))).join(' / ');
  const last = known.at(-1);
  text(p.now, last ? words(last) : '—');
  p.picture.setAttribute('aria-label', `${t(p.name)}: ${last ? words(last) : '—'}`);
  hover(p, from, to, known.map((b) => ({ at: b.at * 1000, label: words(b) })));
}
