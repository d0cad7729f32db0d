#!/usr/bin/env node
// Runs real ComfyUI clients, and plain checks of the protocol, against a reference and a hub.
// What passes on the reference must pass on the hub. See README.md.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { cases } from './cases.mjs';
import { defaultCache, installNode, installPython } from './lib/install.mjs';
import { report } from './lib/report.mjs';

const usage = `usage: node run.mjs [--reference URL] [--hub URL] [--instances N] [--only WORD,...]

  --reference URL  a ComfyUI (or the simulator); CONFORMANCE_REFERENCE
  --hub URL        the hub; CONFORMANCE_HUB
  --instances N    how many instances are behind the hub (1); CONFORMANCE_INSTANCES
  --only WORD,...  only cases whose name contains one of the words; CONFORMANCE_ONLY
  --cache FOLDER   where the clients are installed (${defaultCache}); CONFORMANCE_CACHE
  --python FILE    the Python to make the environment with (python3); CONFORMANCE_PYTHON
  --install        install the clients and stop
  --list           list the cases and stop
  --verbose        show what the cases print`;

const env = process.env;
const root = import.meta.dirname;
const say = (text) => console.log(text);

const { values: options } = parseArgs({
  options: {
    reference: { type: 'string', default: env.CONFORMANCE_REFERENCE },
    hub: { type: 'string', default: env.CONFORMANCE_HUB },
    instances: { type: 'string', default: env.CONFORMANCE_INSTANCES ?? '1' },
    only: { type: 'string', default: env.CONFORMANCE_ONLY ?? '' },
    cache: { type: 'string', default: env.CONFORMANCE_CACHE ?? defaultCache },
    python: { type: 'string', default: env.CONFORMANCE_PYTHON ?? 'python3' },
    install: { type: 'boolean' },
    list: { type: 'boolean' },
    verbose: { type: 'boolean' },
    help: { type: 'boolean' },
  },
});

process.exitCode = await main();

async function main() {
  const servers = ['reference', 'hub'].filter((server) => options[server]);
  const words = options.only.split(',').filter(Boolean);
  const chosen = cases.filter(({ name }) => !words.length || words.some((word) => name.includes(word)));
  if (options.list) {
    for (const { name } of chosen) say(name);
    return 0;
  }
  if (options.help || (!servers.length && !options.install) || !chosen.length) {
    say(usage);
    return options.help ? 0 : 2;
  }
  const programs = install(chosen.some(({ python }) => python));
  if (options.install) return 0;
  for (const server of servers) {
    if (!(await describe(server))) return 1;
  }

  const rows = [];
  for (const item of chosen) {
    const row = { name: item.name, hubOnly: item.hubOnly };
    for (const server of servers) {
      if (server === 'reference' && item.hubOnly) continue;
      await settle(options[server]);
      row[server] = await run(item, options[server], server === 'hub' ? options.instances : '1', programs);
      const { status, detail, ms } = row[server];
      const note = status === 'fail' ? headline(detail) : detail;
      say(`${status.padEnd(4)} ${server.padEnd(9)} ${(ms / 1000).toFixed(1).padStart(6)} s  ${item.name}${note ? `: ${note.slice(0, 160)}` : ''}`);
    }
    if (!servers.some((server) => row[server])) row.reference = { status: 'skip', detail: `a stock ComfyUI cannot: ${item.hubOnly}` };
    rows.push(row);
  }
  return report(rows, servers, say);
}

/** The line of a failure that says most: where JavaScript's traces begin and Python's end. */
function headline(detail) {
  const lines = detail.trim().split('\n');
  return lines.find((line) => /^\w*(Error|Exception)\b/.test(line)) ?? lines[0];
}

/** The programs that run the cases. Without a Python its clients are skipped, loudly. */
function install(withPython) {
  const modules = installNode(options.cache, say);
  const programs = { node: process.execPath, modules };
  if (!withPython) return programs;
  try {
    programs.python = installPython(options.cache, options.python, say);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    say(`no ${options.python} here: the Python clients are skipped`);
  }
  return programs;
}

/** Says what answers at a URL; false if nothing does. */
async function describe(server) {
  try {
    const answer = await fetch(`${options[server]}/system_stats`, { signal: AbortSignal.timeout(30_000) });
    const { system } = await answer.json();
    say(`${server}: ${options[server]}, ComfyUI ${system.comfyui_version}`);
    return true;
  } catch (error) {
    say(`${server}: ${options[server]} does not answer: ${error.cause?.message ?? error.message}`);
    return false;
  }
}

/** Waits until a failed case's leavings are done; after a while ends them, so that they do not fail the next one. */
async function settle(url) {
  const post = (to, body) => fetch(url + to, { method: 'POST', body: JSON.stringify(body), signal: AbortSignal.timeout(10_000) });
  const start = Date.now();
  for (let asked = false; Date.now() - start < 60_000;) {
    try {
      const answer = await fetch(`${url}/queue`, { signal: AbortSignal.timeout(10_000) });
      const { queue_running: running, queue_pending: pending } = await answer.json();
      if (!running.length && !pending.length) return;
      if (!asked && Date.now() - start > 3_000) {
        asked = true;
        await post('/queue', { delete: pending.map((row) => row[1]) });
        for (const row of running) await post('/interrupt', { prompt_id: row[1] });
      }
    } catch {
      // The case that follows says better what is wrong.
    }
    await new Promise((done) => setTimeout(done, 200));
  }
}

/** Runs one case in a process group of its own, and ends the group when its time is up. */
function run(item, url, instances, programs) {
  const program = item.python ? programs.python : programs.node;
  if (!program) return { status: 'skip', detail: 'no Python', ms: 0 };
  const start = Date.now();
  const child = spawn(program, [path.join(root, item.file), '--url', url, '--case', item.case, '--instances', instances], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env, CONFORMANCE_NODE_MODULES: programs.modules, PYTHONDONTWRITEBYTECODE: '1', NO_PROXY: '*' },
  });
  let output = '';
  const take = (chunk) => {
    output = (output + chunk).slice(-200_000);
    if (options.verbose) process.stderr.write(chunk);
  };
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  const kill = () => {
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // it has ended
    }
  };
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    kill();
  }, item.seconds * 1000);
  return new Promise((done) => {
    const end = (result) => {
      clearTimeout(timer);
      kill(); // what the client started and left behind
      done({ ...result, ms: Date.now() - start });
    };
    child.on('error', (error) => end({ status: 'fail', detail: String(error) }));
    child.on('close', (code, signal) => {
      const tail = output.trim().split('\n').slice(-15).join('\n');
      const line = output.match(/^RESULT (\{.*\})$/m)?.[1];
      if (late) end({ status: 'fail', detail: `hung: ended after ${item.seconds} s\n${tail}` });
      else if (line) end(JSON.parse(line));
      else end({ status: 'fail', detail: `ended without a result (${signal ?? code})\n${tail}` });
    });
  });
}
