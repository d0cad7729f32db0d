// h makes an element. Texts are always set as text: most of them were written by users.
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name || 'div');
  if (classes.length) element.className = classes.join(' ');
  set(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const svgSpace = 'http://www.w3.org/2000/svg';

// s makes an SVG element.
export function s(name, attributes, ...children) {
  const element = document.createElementNS(svgSpace, name);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
}

// text changes a text only if it is different.
export function text(element, value) {
  if (element.firstChild?.nodeValue !== value || element.childNodes.length !== 1) element.textContent = value;
}

// attr changes an attribute only if it is different; null removes it.
export function attr(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

// show hides an element or shows it.
export function show(element, on) {
  if (element.hidden === Boolean(on)) element.hidden = !on;
}

const paths = {
  idle: 'M8 8m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0',
  busy: 'M5 3.5v9l7.5-4.5z',
  foreign: 'M8 2.5 13.5 8 8 13.5 2.5 8z',
  draining: 'M4.5 3.5h2.4v9H4.5zM9.1 3.5h2.4v9H9.1z',
  sick: 'M8 2 14.5 13.5h-13z',
  offline: 'M4 4l8 8M12 4l-8 8',
  up: 'M8 13V3.5M4 7.5 8 3.5l4 4',
  down: 'M8 3v9.5M4 8.5l4 4 4-4',
  top: 'M3.5 3h9M8 13V6M4.5 9 8 5.7 11.5 9',
  pause: 'M5 3.5v9M11 3.5v9',
  play: 'M5 3.5v9l7.5-4.5z',
  close: 'M4 4l8 8M12 4l-8 8',
  open: 'M9 3h4v4M13 3 7.5 8.5M11.5 9.5V13H3V4.5h3.5',
  save: 'M8 2.5v7.5M4.8 7.2 8 10.3l3.2-3.1M3 13.5h10',
  again: 'M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3',
  flow: 'M3 3.5h3v3H3zM10 9.500h3v3h-3zM6 5h3.500v6h.5',
  sun: 'M8 8m-2.800 0a2.800 2.800 0 1 0 5.600 0a2.800 2.800 0 1 0 -5.600 0M8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z',
  auto: 'M2.500 3.500h11v7h-11zM6 13h4M8 10.500V13',
};
const filled = new Set(['idle', 'busy', 'foreign', 'draining', 'sick', 'play']);

// icon makes one of the pictures above. It says nothing to a screen reader.
export function icon(name) {
  return s('svg', { viewBox: '0 0 16 16', class: `icon ${filled.has(name) ? 'filled' : ''}`, 'aria-hidden': 'true', focusable: 'false' }, s('path', { d: paths[name] }));
}

// button makes a button with a picture, which a screen reader and a tooltip name.
export function button(picture, label, onclick, more) {
  return h('button.ghost', { type: 'button', title: label, 'aria-label': label, onclick, ...more }, icon(picture));
}

// trouble is a place that says why there is nothing to show.
export function trouble() {
  const words = h('h2');
  const element = h('div.empty', { hidden: true }, words);
  return {
    element, say(error) {
      text(words, error?.message ?? '');
      show(element, Boolean(error));
    },
  };
}
