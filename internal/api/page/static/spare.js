import { h, show, text } from './dom.js';
import { call } from './hub.js';
import { said } from './reasons.js';
import { store } from './store.js';
import { num, t } from './words.js';

const every = 5000;

// spare shows operators the machines that come and go by need, and the serverless endpoints: how many
// there are, why, and what they cost today. It is empty where there are none.
export function spare() {
  const element = h('section.spare', { hidden: true, tabindex: '0', 'aria-label': t('spare') });
  const shown = new Map();
  let ended = false;
  let asked = 0;

  async function load() {
    if (!store.me.operator || Date.now() - asked < every) return;
    asked = Date.now();
    const all = await call('GET', 'scale').catch(() => null);
    if (ended || !all) return;
    const cards = [...all.classes.map((c) => ['class', c]), ...all.overflow.map((e) => ['endpoint', e])];
    const keys = cards.map(([kind, value]) => `${kind} ${value[kind]}`);
    for (const [key, card] of shown) if (!keys.includes(key)) { card.element.remove(); shown.delete(key); }
    cards.forEach(([kind, value], n) => {
      if (!shown.has(keys[n])) shown.set(keys[n], card());
      shown.get(keys[n]).fill(kind, value);
      if (element.children[n] !== shown.get(keys[n]).element) element.insertBefore(shown.get(keys[n]).element, element.children[n] ?? null);
    });
    show(element, cards.length > 0);
  }
  return { element, update: load, end() { ended = true; } };
}

function card() {
  const [name, count, why, wrong, cost] = [h('span.name'), h('span.num'), h('span.sub'), h('span.sub.bad'), h('span.sub.num')];
  const used = h('i');
  const track = h('div.track', {}, used);
  const element = h('div.card', {}, h('div.head', {}, name, count), why, wrong, track, cost);
  return {
    element, fill(kind, v) {
      text(name, v[kind]);
      text(count, (kind === 'class' ? [
        t('machines', { n: num(v.have), x: num(v.wanted) }), v.starting ? t('starting', { n: num(v.starting) }) : '', v.leaving ? t('leaving', { n: num(v.leaving) }) : '',
      ] : [t('serverless', { n: num(v.running) })]).filter(Boolean).join(' · '));
      text(why, said(v.why ?? ''));
      text(wrong, said(v.error ?? v.closed ?? ''));
      show(why, Boolean(v.why));
      show(wrong, Boolean(v.error ?? v.closed));
      show(cost, v.price > 0);
      show(track, v.price > 0 && v.budget > 0);
      if (v.price > 0) text(cost, v.budget > 0 ? t('spent.of', { n: money(v.spent_today), x: money(v.budget) }) : t('spent', { n: money(v.spent_today) }));
      if (v.budget > 0) used.style.width = `${Math.min(100, 100 * v.spent_today / v.budget)}%`;
      element.classList.toggle('full', v.budget > 0 && v.spent_today > 0.9 * v.budget);
    },
  };
}

const money = (amount) => amount.toLocaleString(document.documentElement.lang, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
