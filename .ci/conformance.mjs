#!/usr/bin/env node
// Runs the conformance suite against simulated ComfyUI servers of three versions, and against ./caddy in front of 1, 2 and
// 3 of each; the cases of A1111's API against a simulated A1111, and against ./caddy in front of two. With COMFYUI_URL (one
// URL, or several by commas) against those servers instead, and against ./caddy in front of 1, 2 ... of each version among
// them. The programs must have been built (make build).
//
//   --only WORD,...     cases whose names contain one of the words
//   --columns WORD,...  columns whose names contain one of the words, such as "x2" or "hub 0.33.0"
//   --at-once N         columns that are run at the same time
//   --verbose           show what the cases print
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { choose } from '../tools/conformance/cases.mjs';
import { defaultCache, install } from '../tools/conformance/lib/install.mjs';
import { report } from '../tools/conformance/lib/report.mjs';
import { runAll, versionOf } from '../tools/conformance/lib/suite.mjs';
import { Fleets } from './fleet.mjs';

const versions = ['0.3.64', '0.33.0', '0.38.1'];
const counts = [1, 2, 3];
/** The hubs that the slow clients are run against too: each version and each number of instances is among them. */
const diagonal = ['hub 0.3.64 x1', 'hub 0.33.0 x2', 'hub 0.3.64 x3', 'hub 0.38.1 x3'];

/** A hub whose listings are those of a single ComfyUI. */
const one = { name: 'hub queue one', hub: true, version: '0.33.0', instances: 2, site: 'queue one' };

/** The version of A1111's API that its simulated servers play. */
const a1111 = { dialect: 'a1111', version: '1.10.1' };

const say = (text) => console.log(text);
const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: process.env.CONFORMANCE_ONLY ?? '' },
    columns: { type: 'string', default: '' },
    // The cases sleep more than they compute.
    'at-once': { type: 'string', default: String(2 * availableParallelism()) },
    verbose: { type: 'boolean' },
  },
});

const fleets = new Fleets();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));
process.on('exit', () => fleets.end());
// What is still running keeps the loop alive: end it with this process.
process.exit(await main());

async function main() {
  const urls = (process.env.COMFYUI_URL ?? '').split(',').map((url) => url.trim().replace(/\/+$/, '')).filter(Boolean);
  const words = options.columns.split(',').filter(Boolean);
  const columns = (urls.length ? await real(urls) : simulated()).filter(({ name }) => !words.length || words.some((word) => name.includes(word)));
  const cases = choose(options.only);
  const programs = install({ cache: process.env.CONFORMANCE_CACHE ?? defaultCache, python: process.env.CONFORMANCE_PYTHON ?? 'python3' }, cases.some(({ needsPython }) => needsPython), say);
  const rows = await runAll(columns, cases, { programs, atOnce: Number(options['at-once']), say, verbose: options.verbose });
  return report(rows, columns, say);
}

function simulated() {
  const plain = versions.map((version) => column({ name: `plain ${version}`, hub: false, version }, () => fleets.plain(version)));
  const hubs = counts.flatMap((count) => versions.map((version) => {
    const name = `hub ${version} x${count}`;
    return column({ name, hub: true, version, instances: count, diagonal: diagonal.includes(name) }, () => fleets.hub({ name, version, count }));
  }));
  return [...hubs.toReversed(), ...plain, column(one, () => fleets.hub({ ...one, count: one.instances })), ...ofA1111()]; // the longest first
}

function ofA1111() {
  const name = 'a1111 hub x2';
  return [
    column({ ...a1111, name: 'a1111 plain', hub: false }, async () => {
      const { urls: [url], ...server } = await fleets.a1111(1);
      return { url, ...server };
    }),
    column({ ...a1111, name, hub: true, instances: 2 }, () => fleets.hubOfA1111(name, 2)),
  ];
}

/** Real servers are shared by their columns, which therefore come one after another. */
async function real(urls) {
  const groups = new Map();
  for (const url of urls) {
    const version = await versionOf(url);
    groups.set(version, [...(groups.get(version) ?? []), url]);
  }
  return [...groups].flatMap(([version, group]) => [
    column({ name: `plain ${version}`, hub: false, version, servers: version }, async () => ({ url: group[0], close: () => {} })),
    ...group.map((_, i) => {
      const count = i + 1;
      const name = `hub ${version} x${count}`;
      return column({ name, hub: true, version, instances: count, servers: version }, () => fleets.hub({ name, version, count, urls: group.slice(0, count) }));
    }),
  ]);
}

/** A column whose servers are started when its turn comes, and stopped after it. */
function column(properties, start) {
  let started;
  return {
    ...properties,
    async open() {
      started = await start();
      return started.url;
    },
    async close(failed) {
      if (failed && properties.hub) started?.tails();
      await started?.close();
    },
  };
}
