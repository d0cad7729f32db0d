import { button, h } from './dom.js';
import { t } from './words.js';

const panel = document.getElementById('panel');
let update = null;
let came = null;

// openPanel shows details beside a view; fill gets the place for them and may return a
// function that brings them up to date. The focus goes there, and back at the end.
export function openPanel(title, fill, from) {
  closePanel();
  came = from ?? document.activeElement;
  const body = h('div.body');
  const close = button('close', t('close'), () => closePanel(true));
  panel.replaceChildren(h('div.title', {}, h('h2', { id: 'panel-title' }, title), close), body);
  panel.setAttribute('aria-labelledby', 'panel-title');
  panel.setAttribute('role', 'dialog');
  panel.hidden = false;
  document.body.classList.add('with-panel');
  update = fill(body) ?? null;
  close.focus();
}

export function closePanel(back) {
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  document.body.classList.remove('with-panel');
  update?.end?.();
  update = null;
  if (back && came?.isConnected) came.focus();
}

export function refreshPanel() { update?.(); }

addEventListener('keydown', (event) => {
  if (event.key === 'Escape') closePanel(true);
});

// facts makes a list of names and values; it skips what is not known.
export function facts(pairs) {
  return h('dl', {}, pairs.filter(([, value]) => value !== '' && value !== null && value !== undefined)
    .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}
