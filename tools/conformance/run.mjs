#!/usr/bin/env node
// Runs real ComfyUI clients, and plain checks of the protocol, against any number of plain servers and hubs.
// What passes on a plain ComfyUI must pass on a hub. See README.md.
import { parseArgs } from 'node:util';
import { choose } from './cases.mjs';
import { defaultCache, install } from './lib/install.mjs';
import { report } from './lib/report.mjs';
import { runAll, versionOf } from './lib/suite.mjs';

const usage = `usage: node run.mjs [--reference URL,...] [--hub URL,...] [--instances N] [--only WORD,...]

  --reference URL  a ComfyUI (or the simulator); several by commas; CONFORMANCE_REFERENCE
  --hub URL        a hub; several by commas; CONFORMANCE_HUB
  --instances N    how many instances are behind each hub (asked of it at /hub/instances); CONFORMANCE_INSTANCES
  --at-once N      servers that are tried at the same time (1); more only if no two hubs share an instance; CONFORMANCE_AT_ONCE
  --only WORD,...  only cases whose name contains one of the words; CONFORMANCE_ONLY
  --cache FOLDER   where the clients are installed (${defaultCache}); CONFORMANCE_CACHE
  --python FILE    the Python to make the environment with (python3); CONFORMANCE_PYTHON
  --install        install the clients and stop
  --list           list the cases and stop
  --verbose        show what the cases print`;

const env = process.env;
const say = (text) => console.log(text);

const { values: options } = parseArgs({
  options: {
    reference: { type: 'string', default: env.CONFORMANCE_REFERENCE ?? '' },
    hub: { type: 'string', default: env.CONFORMANCE_HUB ?? '' },
    instances: { type: 'string', default: env.CONFORMANCE_INSTANCES },
    'at-once': { type: 'string', default: env.CONFORMANCE_AT_ONCE ?? '1' },
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
  const cases = choose(options.only);
  if (options.list) {
    for (const { name } of cases) say(name);
    return 0;
  }
  const urls = (list) => list.split(',').filter(Boolean).map((url) => url.replace(/\/+$/, ''));
  const servers = [...urls(options.reference).map((url) => ({ url, hub: false })), ...urls(options.hub).map((url) => ({ url, hub: true }))];
  if (options.help || (!servers.length && !options.install) || !cases.length) {
    say(usage);
    return options.help ? 0 : 2;
  }
  const programs = install(options, cases.some(({ needsPython }) => needsPython), say);
  if (options.install) return 0;
  const columns = [];
  for (const server of servers) {
    try {
      columns.push(await describe(server, columns));
    } catch (error) {
      say(`${server.url} does not answer: ${error.cause?.message ?? error.message}`);
      return 1;
    }
  }
  const rows = await runAll(columns, cases, { programs, atOnce: Number(options['at-once']), say, verbose: options.verbose });
  return report(rows, columns, say);
}

/** The column of a server: its version and, for a hub, how many instances it has. */
async function describe({ url, hub }, others) {
  const version = await versionOf(url);
  const instances = Number(options.instances ?? (hub ? await instancesOf(url) : 1));
  let name = hub ? `hub ${version} x${instances}` : `plain ${version}`;
  for (let n = 2; others.some((column) => column.name === name); n++) name = name.replace(/( #\d+)?$/, ` #${n}`);
  say(`${name}: ${url}`);
  return { name, url, hub, version, instances, open: () => url };
}

async function instancesOf(url) {
  const answer = await fetch(`${url}/hub/instances`, { signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw new Error(`GET /hub/instances: ${answer.status}; say --instances`);
  return (await answer.json()).filter(({ state }) => state === 'idle' || state === 'busy').length || 1;
}
