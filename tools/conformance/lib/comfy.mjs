// A plain client of one server, written from the protocol. The checks use it instead of a library.
import { randomUUID } from 'node:crypto';
import { Skip, brief, library, must, same, until, within } from './case.mjs';
import { expectStrict } from './answer.mjs';
import { work } from './graph.mjs';
import { expectPicture } from './picture.mjs';

const WebSocket = library('ws');

/** How long one prompt may take, in ms, including its wait in the queue. */
export const PATIENCE = 90_000;

export class Server {
  /** `agent` is the User-Agent, by which a server may tell callers at one address apart. */
  constructor(url, agent = 'comfyhub-conformance') {
    this.url = url;
    this.agent = agent;
  }

  /** Every answer goes through a strict parser, so every check tests that too. */
  async fetch(path, init = {}) {
    const headers = { 'user-agent': this.agent, ...init.headers };
    const answer = await fetch(this.url + path, { ...init, headers, signal: AbortSignal.timeout(30_000) });
    await expectStrict(path, answer);
    return answer;
  }

  async text(path, init) {
    const answer = await this.fetch(path, init);
    const body = await answer.text();
    must(answer.ok, `${init?.method ?? 'GET'} ${path}: ${answer.status} ${body.slice(0, 300)}`);
    return body;
  }

  async json(path, init) {
    const body = await this.text(path, init);
    try {
      return JSON.parse(body);
    } catch {
      throw new Error(`${path}: no JSON: ${body.slice(0, 300)}`);
    }
  }

  post(path, body) {
    return this.text(path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  }

  /** Posts a prompt and returns its id. */
  async submit(prompt, { clientId, ...more } = {}) {
    const body = { prompt, ...more };
    if (clientId !== undefined) body.client_id = clientId;
    const answer = JSON.parse(await this.post('/prompt', body));
    must(typeof answer.prompt_id === 'string' && answer.prompt_id !== '', `POST /prompt without prompt_id: ${brief(answer)}`);
    must(Number.isFinite(answer.number), `POST /prompt: number is ${brief(answer.number)}`);
    same(answer.node_errors, {}, 'POST /prompt node_errors');
    return answer.prompt_id;
  }

  /** The history entry of a prompt, or undefined. */
  async history(id) {
    return (await this.json(`/history/${id}`))[id];
  }

  /** The history entry of a prompt once it has ended. */
  ended(id) {
    return until(PATIENCE, `history of ${id}`, () => this.history(id));
  }

  /** Where a prompt is in the queue: 'running', 'pending' or null. */
  async place(id) {
    const queue = await this.json('/queue');
    for (const row of [...queue.queue_running, ...queue.queue_pending]) {
      must(Array.isArray(row) && row.length >= 5, `a row of /queue is no tuple: ${brief(row)}`);
    }
    if (queue.queue_running.some((row) => row[1] === id)) return 'running';
    return queue.queue_pending.some((row) => row[1] === id) ? 'pending' : null;
  }

  /** How many prompts run and wait. */
  async counts() {
    const { queue_running: running, queue_pending: pending } = await this.json('/queue');
    return { running: running.length, pending: pending.length };
  }

  async view({ filename, subfolder = '', type = 'output' }, more = {}) {
    const query = new URLSearchParams({ filename, subfolder, type, ...more });
    const answer = await this.fetch(`/view?${query}`);
    must(answer.ok, `GET /view?${query}: ${answer.status} ${(await answer.clone().text()).slice(0, 200)}`);
    return Buffer.from(await answer.arrayBuffer());
  }

  /** Fetches the one picture of a history entry's outputs and checks it. */
  async expect(outputs, graph, what) {
    const files = Object.values(outputs).flatMap((output) => output.images ?? []);
    must(files.length === 1, `${what}: outputs are ${brief(outputs)}, want one picture`);
    expectPicture(await this.view(files[0]), graph, `${what}, ${files[0].filename}`);
    return files[0];
  }

  async upload(name, bytes, fields = {}) {
    const form = new FormData();
    form.set('image', new Blob([bytes], { type: 'image/png' }), name);
    for (const [key, value] of Object.entries(fields)) form.set(key, value);
    return JSON.parse(await this.text('/upload/image', { method: 'POST', body: form }));
  }

  /** The names of the classes the server knows. */
  async classes() {
    this.known ??= new Set(Object.keys(await this.json('/object_info')));
    return this.known;
  }

  async need(name) {
    if (!(await this.classes()).has(name)) throw new Skip(`the server has no ${name}`);
  }

  /** Nodes that take about `seconds`; skips the case if there are none. */
  async work(seconds) {
    const nodes = work(await this.classes(), seconds);
    if (!nodes) throw new Skip('the server has neither SimulatedWork nor ImageBlur, so nothing takes long enough');
    return nodes;
  }

  /** Opens a socket; `flags` are announced in its first frame. */
  connect(options) {
    return Session.open(this, options);
  }
}

/** One client's socket. It keeps every frame that it receives. */
export class Session {
  frames = [];
  sent = new Set();
  closed = false;
  #waiting = new Set();

  static async open(server, { clientId = randomUUID(), flags, path = '/ws', autoPong = true } = {}) {
    const query = clientId === null ? '' : `?clientId=${encodeURIComponent(clientId)}`;
    const socket = new WebSocket(`${server.url.replace(/^http/, 'ws')}${path}${query}`, {
      maxPayload: 1 << 30,
      autoPong,
      headers: { 'user-agent': server.agent },
    });
    const session = new Session();
    Object.assign(session, { server, socket, clientId });
    socket.on('message', (data, binary) => session.#take(data, binary));
    socket.on('close', () => {
      session.closed = true;
    });
    socket.on('error', () => {
      session.closed = true;
    });
    await within(30_000, 'WebSocket open', new Promise((done, fail) => socket.once('open', done).once('error', fail)));
    if (flags) socket.send(JSON.stringify({ type: 'feature_flags', data: flags }));
    const first = await session.frame((frame) => frame.type === 'status', 30_000, 'the first status');
    session.clientId ??= first.data.sid;
    return session;
  }

  #take(data, binary) {
    const frame = binary ? { binary: data, at: Date.now() } : { ...JSON.parse(data), at: Date.now() };
    this.frames.push(frame);
    for (const look of this.#waiting) look();
  }

  /** The first frame that fits, among those that have come and those to come. */
  frame(fits, ms = PATIENCE, what = 'a frame', from = 0) {
    let look;
    const found = new Promise((done) => {
      look = () => {
        const frame = this.frames.slice(from).find(fits);
        if (frame) done(frame);
      };
      this.#waiting.add(look);
      look();
    });
    return within(ms, what, found)
      .catch((error) => {
        throw new Error(`${error.message}; frames: ${this.frames.slice(-12).map(label).join(' ')}${this.closed ? ' (socket closed)' : ''}`);
      })
      .finally(() => this.#waiting.delete(look));
  }

  async submit(graph, more = {}) {
    const id = await this.server.submit(graph.prompt ?? graph, { clientId: this.clientId, ...more });
    this.sent.add(id);
    return id;
  }

  /** Waits for a prompt's end and returns its history entry, which must be readable at that very moment. */
  async end(id) {
    await this.frame((frame) => frame.type === 'executing' && frame.data.node === null && frame.data.prompt_id === id, PATIENCE, `the end of ${id}`);
    const entry = await this.server.history(id);
    must(entry, `history of ${id} is empty at executing null`);
    return entry;
  }

  /** Submits a graph of graph.mjs, waits for its end and checks the picture. */
  async run(graph, more = {}) {
    const id = await this.submit(graph, more);
    const entry = await this.end(id);
    same([entry.status.status_str, entry.status.completed], ['success', true], `status of ${id}`);
    const file = await this.server.expect(entry.outputs, graph, `prompt ${id}`);
    return { id, entry, file };
  }

  /** The JSON frames that name a prompt. */
  of(id) {
    return this.frames.filter((frame) => frame.data?.prompt_id === id);
  }

  /** Fails if a frame names a prompt that this client did not submit. */
  onlyOwn() {
    const strange = this.frames.find((frame) => frame.data?.prompt_id && !this.sent.has(frame.data.prompt_id));
    must(!strange, `a frame of someone else's prompt: ${brief(strange)}`);
  }

  /** Closes the socket and waits until it is closed. */
  close() {
    const gone = new Promise((done) => this.socket.once('close', done));
    if (this.closed) return Promise.resolve();
    this.socket.close();
    return within(30_000, 'WebSocket close', gone);
  }
}

/** A frame in a word or two, for failure messages. */
export function label(frame) {
  if (frame.binary) return `binary${frame.binary.readUInt32BE(0)}`;
  const node = frame.data && 'node' in frame.data ? `:${frame.data.node}` : '';
  return frame.type + node;
}

/** Fails unless a prompt's frames are one whole sequence of a successful run, in ComfyUI's order. */
export function expectSequence(session, id) {
  const frames = session.of(id).filter((frame) => !['progress', 'progress_state'].includes(frame.type));
  const types = frames.map((frame) => (frame.type === 'executing' && frame.data.node === null ? 'end' : frame.type));
  const shown = frames.map(label).join(' ');
  same(types.slice(0, 2), ['execution_start', 'execution_cached'], `start of ${shown}`);
  same(types.slice(-2), ['execution_success', 'end'], `end of ${shown}`);
  must(types.filter((type) => type === 'end').length === 1, `more than one end: ${shown}`);
  must(types.filter((type) => type === 'execution_start').length === 1, `more than one start: ${shown}`);
  must(types.includes('executed'), `no executed: ${shown}`);
  const success = session.frames.findIndex((frame) => frame.type === 'execution_success' && frame.data.prompt_id === id);
  const end = session.frames.findIndex((frame) => frame.type === 'executing' && frame.data.node === null && frame.data.prompt_id === id);
  must(session.frames.slice(success, end).some((frame) => frame.type === 'status'), `no status between success and the end: ${session.frames.slice(success, end + 1).map(label).join(' ')}`);
}
