import { call } from './hub.js';

// The store is what the hub has told of the fleet and the queue: GET /hub/events sends a
// snapshot, then what changes.
export const store = {
  me: { tenant: 'default', login: false, sees_all: false, operator: false, commands: false, operators_site: false, operators_at: '', open: false, join: '', join_keyed: false, version: '', skew: 0 },
  instances: new Map(),
  jobs: new Map(),
  counts: { waiting: 0, running: 0, own_waiting: 0, own_running: 0, paused: false, tenant_paused: false },
  // web_ui says where ComfyUI's page comes from: { from: 'folder' | 'instance' | 'nowhere' | '', name }.
  web_ui: { from: '', name: '' },
  // strangers says why nothing is deleted from the storage; empty if all is well.
  strangers: '',
  connected: false,
  // heard is when the hub was last there, by this browser's clock.
  heard: 0,
  // refused is whether the hub shows nothing: at the operators' site, to everybody else.
  refused: false,
  ready: false,
  // left counts own jobs that have left the fleet: then there are new results.
  left: 0,
};

const listeners = new Set();
let due = false;

// onChange calls a function after each change, at most once a frame.
export function onChange(listener) { listeners.add(listener); }

export function changed() {
  if (due) return;
  due = true;
  const tell = () => {
    due = false;
    for (const listener of listeners) listener();
  };
  // A hidden tab draws no frames, and must not pile up work for the moment it is shown.
  if (document.hidden) setTimeout(tell, 1000);
  else requestAnimationFrame(tell);
}

// now is the hub's time in milliseconds; while the hub is away, time stands still on the page.
export function now() { return (store.connected || !store.heard ? Date.now() : store.heard) + store.me.skew; }

// A new row leaves out what is not known.
const blankInstance = {
  name: '', state: 'offline', kind: '', gpu: '', version: '', reason: '', fault: '', fault_at: 0, url: '', agent: '', reserved: '', vram_total: 0, vram_free: 0,
  foreign: 0, load: '', models: '', job: '', tenant: '', key: '', began: 0, eta: 0, node: '', class: '', progress: 0, boot: 0, last_seen: 0, drained: false, aside: false,
  others_memory: 0, others_use: 0, restarts: 0, restart_at: 0, restart_error: '', disk_free: 0, disk_size: 0,
};
const blankJob = { key: '', id: '', tenant: '', order: '', position: 0, eta: 0, why: '', priority: 0, band: 'normal', paused: false, attempts: 0, created: 0 };

function merge(map, rows, name, blank) {
  for (const row of rows ?? []) {
    const known = map.get(row[name]);
    if (known) Object.assign(known, row);
    else map.set(row[name], { ...blank, ...row });
  }
}

export function apply(change, whole) {
  const before = new Set();
  for (const { key, tenant } of store.instances.values()) if (key && tenant === store.me.tenant) before.add(key);
  if (whole) {
    store.instances.clear();
    store.jobs.clear();
    store.ready = true;
  }
  for (const name of change.gone_instances ?? []) store.instances.delete(name);
  for (const key of change.gone_jobs ?? []) store.jobs.delete(key);
  merge(store.instances, change.instances, 'name', blankInstance);
  merge(store.jobs, change.jobs, 'key', blankJob);
  if (change.counts) store.counts = change.counts;
  if (change.web_ui) store.web_ui = change.web_ui;
  store.strangers = change.strangers ?? store.strangers;
  if (!whole) {
    for (const { key } of store.instances.values()) before.delete(key);
    store.left += before.size;
  }
  changed();
}

// refusal finds out why there is no stream: at the operators' site everybody else is refused.
async function refusal() {
  store.refused = await call('GET', 'stats').then(() => false, (error) => error.status === 403);
  changed();
}

// connect listens until the page is closed. EventSource connects again by itself, except
// after an answer that is no stream; then this does.
export function connect() {
  const source = new EventSource('events');
  source.addEventListener('hello', (event) => {
    const hello = JSON.parse(event.data);
    store.me = { ...hello, skew: hello.now - Date.now() };
    store.connected = true;
    store.refused = false;
    changed();
  });
  source.addEventListener('snapshot', (event) => apply(JSON.parse(event.data), true));
  source.addEventListener('change', (event) => apply(JSON.parse(event.data), false));
  source.addEventListener('error', () => {
    if (store.connected) store.heard = Date.now();
    store.connected = false;
    changed();
    if (source.readyState !== EventSource.CLOSED) return;
    refusal();
    setTimeout(connect, 5000 + Math.random() * 5000);
  });
}
