#!/usr/bin/env node
// Runs the conformance suite against ./caddy with three simulated instances, and against one simulated ComfyUI as the
// reference. The programs must have been built (make build). Arguments go to conformance/run.mjs.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const root = path.resolve(import.meta.dirname, '..');
const folder = mkdtempSync(path.join(tmpdir(), 'comfyhub-conformance-'));
const instances = 3;
const patience = 60_000; // ms until the fleet must be ready
const running = [];

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));
process.on('exit', () => {
  for (const { child } of running) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

process.exitCode = await main();
// What is still running keeps the loop alive: end it with this process.
process.exit();

async function main() {
  // What a simulated instance shows as its page is none; the hub has the real one.
  const frontend = execFileSync(path.join(root, '.ci/frontend'), ['1.27.10'], { encoding: 'utf8' }).trim();
  const [api, gossip, admin, reference] = await freePorts(4);
  start('reference', 'bin/agent', ['simulate', '--count', '1', '--port', reference]);
  start('hub', './caddy', ['run', '--config', 'Caddyfile'], {
    COMFYHUB_ADDR: `127.0.0.1:${api}`,
    COMFYHUB_ADMIN: `127.0.0.1:${admin}`,
    COMFYHUB_GOSSIP: `127.0.0.1:${gossip}`,
    COMFYHUB_REDIS: 'embedded',
    COMFYHUB_DATA: path.join(folder, 'data'),
    COMFYHUB_FRONTEND: frontend,
    XDG_DATA_HOME: folder,
    XDG_CONFIG_HOME: folder,
  });
  start('agent', 'bin/agent', ['run', '--join', `127.0.0.1:${gossip}`, '--name', 'ci', '--simulate', String(instances)]);

  const hub = `http://127.0.0.1:${api}`;
  try {
    await until(async () => (await fetch(`http://127.0.0.1:${reference}/queue`)).ok);
    await until(async () => (await (await fetch(`${hub}/hub/instances`)).json()).filter(({ state }) => state === 'idle').length === instances);
  } catch (error) {
    console.error(`the fleet is not ready after ${patience / 1000} s: ${error.message}`);
    tails();
    return 1;
  }
  const code = await suite(['--hub', hub, '--instances', String(instances), '--reference', `http://127.0.0.1:${reference}`, ...process.argv.slice(2)]);
  if (code !== 0) tails();
  return code;
}

/** Starts a program whose output goes to a log. Settings of this machine's own hub do not reach it. */
function start(name, program, args, settings = {}) {
  const log = path.join(folder, `${name}.log`);
  const out = openSync(log, 'w');
  const inherited = Object.entries(process.env).filter(([variable]) => !variable.startsWith('COMFYHUB_'));
  const child = spawn(path.resolve(root, program), args, { cwd: root, env: { ...Object.fromEntries(inherited), ...settings }, stdio: ['ignore', out, out] });
  child.on('error', (error) => {
    console.error(`${name}: ${error.message} (has it been built?)`);
    process.exit(1);
  });
  running.push({ log, child });
}

function suite(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [path.join(root, 'conformance', 'run.mjs'), ...args], { stdio: 'inherit' });
    running.push({ child });
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

async function until(holds) {
  const deadline = Date.now() + patience;
  for (;;) {
    let trouble = new Error('it answers, but is not complete');
    try {
      if (await holds()) return;
    } catch (error) {
      trouble = error;
    }
    if (Date.now() > deadline) throw trouble;
    await pause(100);
  }
}

/** So many free ports, all open at once so that they differ. */
async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, () => new Promise((resolve) => {
      const server = createServer().listen(0, '127.0.0.1', () => resolve(server));
    })),
  );
  const ports = servers.map((server) => String(server.address().port));
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** The end of each program's log. */
function tails() {
  for (const { log } of running) {
    if (!log) continue;
    console.error(`--- the end of ${path.basename(log)}`);
    console.error(readFileSync(log, 'utf8').trim().split('\n').slice(-20).join('\n'));
  }
}
