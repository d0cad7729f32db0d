// Every case of the suite, by file and name. Each runs in its own process.
// `hubOnly` says why a stock ComfyUI cannot do it; such a case runs only against hubs.
// `site` gives the words that a hub's site must have for it, `dialect` the API that it speaks if that is not ComfyUI's.
// A `strict` case must pass in every column: only servers that the suite starts itself are among them.
// A new case runs in every column without being named anywhere else.

const v2 = { hubOnly: 'it does not speak the Comfy API v2' };
const a1111 = { dialect: 'a1111', strict: true };

const groups = {
  'clients/stable-canvas.mjs': {
    websocket: {}, cached: {}, polling: {}, apiBase: {}, concurrent: {}, concurrentPolling: {}, routes: {}, refused: {},
  },
  'clients/saintno.mjs': {
    one: {}, twoAtOnce: {}, pool: {}, poolRouting: {}, poolLowest: {}, idle: { diagonal: true }, routes: {},
  },
  'clients/comfy-ui-client.mjs': { flow: {}, concurrent: {}, upload: {}, routes: {} },
  'clients/cli.py': {
    run_and_wait: {},
    run_queued: { hubOnly: 'it sends no frame while a prompt waits, and comfy-cli gives up', seconds: 240 },
    run_refused: {}, jobs: { seconds: 300 }, cancel_pending: { seconds: 300 }, cancel_running: {}, cancel_unknown: {}, transfer: {},
  },
  'clients/api_client.py': { submit: {}, concurrent: {}, queue: {}, upload: {}, interrupt: {}, routes: {} },
  'clients/comfy_v2.py': { job: v2, listed: v2, events: v2, assets: v2, keys: v2, cancel: v2, asynchronous: v2 },
  'clients/script.py': { workflow: { seconds: 90 } },
  'clients/libraries.py': {
    simplified: {}, simplified_upload: {}, simplified_pictures: {}, workflow_client: {}, workflow_client_async: {}, xy: {}, manager: {}, utils: {},
    utils_busy: { site: 'queue one', diagonal: false },
  },
  'clients/example_flow.py': { flow: {}, parallel: {}, ws_images: {}, socket_per_prompt: {}, polling: {}, object_info: {} },
  'checks/events.mjs': {
    twoClients: {}, serial: {}, cached: {}, ownId: {}, sid: {}, newestSocket: {},
    oldSocketCloses: { hubOnly: 'its cleanup of the old socket unregisters the new one' },
    lateSocket: { hubOnly: 'it drops what is addressed to a client that is not connected' },
    socketPerPrompt: {}, socketDropped: {},
    keepAlive: { hubOnly: 'it sends nothing to an idle socket' },
    executionError: {},
  },
  'checks/files.mjs': { uploadAnywhere: {}, outputNames: {}, viewAtExecuted: {}, sameName: {}, folders: {}, view: {} },
  'checks/models.mjs': { upload: {}, copied: {} },
  'checks/cancel.mjs': {
    all: {}, some: {}, pending: {}, running: {}, bare: {}, bareScoped: {}, unknown: {}, race: {}, clear: {},
    clearScoped: { hubOnly: 'it has one queue for all, and clears the whole' },
  },
  'checks/exact.mjs': {
    seeds: {}, bigNumber: {}, contentTypes: {}, graphKept: {}, previews: {}, bigFrame: {},
    deafClient: { hubOnly: 'its one publisher waits for each socket, so one that does not read stops all' },
  },
  'checks/headers.mjs': { single: {}, origin: {} },
  'checks/surface.mjs': {
    neverLost: {}, promptEnd: {}, counts: {}, pollers: {}, refusals: {}, routes: {}, historyList: {}, frontend: {},
    oneRunning: { site: 'queue one' },
  },
  'a1111/webui_api.py': { pictures: a1111, extras: a1111, routes: a1111, interrupted: a1111, refused: a1111 },
  'a1111/node-sd-webui.mjs': { pictures: a1111, pngInfo: a1111, refused: a1111 },
  'a1111/together.mjs': { ten: { ...a1111, needsPython: true } },
};

// Slow clients run with each version and with each number of instances, but not with all pairs of them (`diagonal`).
const slow = ['clients/cli.py', 'clients/api_client.py', 'clients/script.py', 'clients/libraries.py'];

/** The cases in order: name, file, whether it is Python, whether it is a published client, limits. */
const cases = Object.entries(groups).flatMap(([file, members]) =>
  Object.entries(members).map(([name, { hubOnly, site, dialect, strict, needsPython = file.endsWith('.py'), seconds = 180, diagonal = slow.includes(file) }]) => ({
    name: `${file.replace(/^.*\/|\.\w+$/g, '')}: ${name}`,
    file,
    case: name,
    python: file.endsWith('.py'),
    needsPython,
    published: file.startsWith('clients/'),
    hubOnly,
    site,
    dialect,
    strict,
    diagonal,
    seconds,
  })));

/** The cases whose names contain one of the comma-separated words; all cases if there are no words. */
export function choose(only = '') {
  const words = only.split(',').filter(Boolean);
  return cases.filter(({ name }) => !words.length || words.some((word) => name.includes(word)));
}
