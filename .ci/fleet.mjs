// Starts what the conformance suite is run against: simulated ComfyUI servers, and ./caddy with an agent.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { freePorts } from './ports.mjs';

const root = path.resolve(import.meta.dirname, '..');
const patience = 90_000; // ms until a server must be ready

/** The version of the web UI that was current with a version of ComfyUI. */
const uis = { '0.3.64': '1.27.10', '0.33.0': '1.49.6' };

/** Programs of one run, and the folder that they write to. All end with this process at the latest. */
export class Fleets {
  #folder = mkdtempSync(path.join(tmpdir(), 'comfyhub-conformance-'));
  #children = new Set();

  /** Ends everything at once. */
  end() {
    for (const { child } of this.#children) child.kill('SIGKILL');
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Starts one simulated ComfyUI; `url` and `close()` of what is given are those of a column. */
  async plain(version) {
    const [port] = await freePorts(1);
    const server = this.#start(`plain-${version}`, 'bin/agent', ['simulate', '--count', '1', '--port', port, '--comfyui-version', version]);
    const url = `http://127.0.0.1:${port}`;
    await this.#ready([server], async () => (await fetch(`${url}/queue`)).ok);
    return { url, tails: () => tails([server]), close: () => this.#stop([server]) };
  }

  /** Starts so many simulated A1111 servers, each a program of its own. */
  async a1111(count) {
    const ports = await freePorts(count);
    const models = ['checkpoints/fox.safetensors', 'checkpoints/owl.safetensors', 'loras/ink'].flatMap((model) => ['--model', model]);
    const servers = ports.map((port) =>
      this.#start(`a1111-${port}`, 'bin/agent', ['simulate', '--a1111', '--port', port, '--step-time', '20ms', ...models]));
    const urls = ports.map((port) => `http://127.0.0.1:${port}`);
    await this.#ready(servers, async () => {
      for (const url of urls) if (!(await fetch(`${url}/sdapi/v1/progress`)).ok) return false;
      return true;
    });
    return { urls, tails: () => tails(servers), close: () => this.#stop(servers) };
  }

  /** Starts a hub in front of so many simulated A1111 servers. */
  async hubOfA1111(name, count) {
    const servers = await this.a1111(count);
    const hub = await this.hub({ name, count, urls: servers.urls, kind: 'a1111' });
    return {
      url: hub.url,
      tails: () => [servers, hub].forEach((one) => one.tails()),
      close: () => Promise.all([hub.close(), servers.close()]),
    };
  }

  /** Starts a hub with an agent in front of so many simulated instances, or of the servers at `urls`, of a `kind`; `site` is a word of its site. */
  async hub({ name, version, count, site, urls = [], kind = 'comfyui' }) {
    const [api, operators, gossip, admin] = await freePorts(4);
    const slug = name.replaceAll(/[^\w.]+/g, '-');
    const home = path.join(this.#folder, slug);
    mkdirSync(home);
    const hub = this.#start(`${slug}-hub`, './caddy', ['run', '--config', 'Caddyfile'], {
      COMFYHUB_ADDR: `127.0.0.1:${api}`,
      COMFYHUB_ADDR_HOST: '127.0.0.1',
      COMFYHUB_ADDR_PORT: api,
      COMFYHUB_OPERATORS: `127.0.0.1:${operators}`,
      COMFYHUB_ADMIN: `127.0.0.1:${admin}`,
      COMFYHUB_GOSSIP: `127.0.0.1:${gossip}`,
      COMFYHUB_REDIS: 'embedded',
      ...(site ? { COMFYHUB_SITE: site } : {}),
      COMFYHUB_DATA: path.join(home, 'data'),
      // What a simulated instance shows as its page is none.
      ...(urls.length ? {} : { COMFYHUB_FRONTEND: frontend(version) }),
      XDG_DATA_HOME: home,
      XDG_CONFIG_HOME: home,
    });
    const servers = urls.length
      ? urls.flatMap((url, i) => [`--${kind}`, `server${i + 1}=${url}`])
      : ['--simulate', String(count), '--comfyui-version', version];
    const agent = this.#start(`${slug}-agent`, 'bin/agent', ['run', '--join', `127.0.0.1:${gossip}`, '--name', 'ci', ...servers]);
    const url = `http://127.0.0.1:${api}`;
    await this.#ready([hub, agent], async () => {
      const instances = await (await fetch(`${url}/hub/instances`)).json();
      if (instances.filter(({ state }) => state === 'idle').length !== count) return false;
      // Instances are idle a moment before the hub has read what classes they have.
      return Object.keys(await (await fetch(`${url}/object_info`)).json()).length > 0;
    });
    return { url, tails: () => tails([agent, hub]), close: () => this.#stop([agent, hub]) };
  }

  /** Starts a program whose output goes to a log. Settings of this machine's own hub do not reach it. */
  #start(name, program, args, settings = {}) {
    const log = path.join(this.#folder, `${name}.log`);
    const out = openSync(log, 'w');
    const inherited = Object.entries(process.env).filter(([variable]) => !variable.startsWith('COMFYHUB_'));
    const child = spawn(path.resolve(root, program), args, { cwd: root, env: { ...Object.fromEntries(inherited), TMPDIR: this.#folder, ...settings }, stdio: ['ignore', out, out] });
    const started = { log, child };
    child.on('error', (error) => {
      started.trouble = `${program}: ${error.message} (has it been built?)`;
    });
    this.#children.add(started);
    return started;
  }

  async #stop(started) {
    for (const one of started) {
      const { child } = one;
      if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
        const gone = new Promise((done) => child.once('exit', done));
        child.kill('SIGKILL'); // nothing is kept, so there is nothing to save
        await gone;
      }
      this.#children.delete(one);
    }
  }

  async #ready(started, holds) {
    const deadline = Date.now() + patience;
    for (;;) {
      let trouble = new Error('it answers, but is not complete');
      try {
        if (await holds()) return;
      } catch (error) {
        trouble = error;
      }
      const broken = started.find((one) => one.trouble);
      if (broken) throw new Error(broken.trouble);
      if (Date.now() > deadline) {
        tails(started);
        throw new Error(`not ready after ${patience / 1000} s: ${trouble.cause?.message ?? trouble.message}`);
      }
      await pause(100);
    }
  }
}

/** Prints the end of each program's log. */
function tails(started) {
  for (const { log } of started) {
    console.error(`--- the end of ${path.basename(log)}`);
    console.error(readFileSync(log, 'utf8').trim().split('\n').slice(-20).join('\n'));
  }
}

const frontends = new Map();

function frontend(version) {
  const ui = uis[version] ?? Object.values(uis)[0];
  if (!frontends.has(ui)) frontends.set(ui, execFileSync(path.join(root, '.ci/frontend'), [ui], { encoding: 'utf8' }).trim());
  return frontends.get(ui);
}
