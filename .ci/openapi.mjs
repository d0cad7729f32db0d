#!/usr/bin/env node
// Checks the plain job API of ./caddy against its OpenAPI document: Schemathesis sends what the document allows and what it
// does not, and no answer may be a server's error or one that the document does not have. A seed decides what is sent. The
// programs must have been built (make build).
//
//   --seed N      what is sent (1)
//   --examples N  how many requests of each kind are made (60); more find more, by hand
import { spawn } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { defaultCache, installPython } from '../tools/conformance/lib/install.mjs';
import { Fleets } from './fleet.mjs';

const folder = path.resolve(import.meta.dirname, '../tools/conformance/openapi');
const version = '0.33.0';
const { values: options } = parseArgs({ options: { seed: { type: 'string', default: '1' }, examples: { type: 'string', default: '60' } } });

const python = installPython(
  { cache: process.env.CONFORMANCE_CACHE ?? defaultCache, python: process.env.CONFORMANCE_PYTHON ?? 'python3' }, 'openapi/requirements.txt', console.log,
);
const fleets = new Fleets();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));
process.on('exit', () => fleets.end());
const hub = await fleets.hub({ name: 'openapi', version, count: 2 });
const code = await run();
if (code !== 0) hub.tails();
process.exit(code);

/** Runs Schemathesis, and gives its exit code. */
function run() {
  const args = [
    'run', `${hub.url}/hub/v1/openapi.json`, '--origin', hub.url, '--seed', options.seed, '--max-examples', options.examples,
    // A workflow that the schema allows may still be one that no server can run.
    '--exclude-checks', 'positive_data_acceptance', '--continue-on-failure', '--request-timeout', '60', '--workers', '1',
  ];
  const env = { ...process.env, SCHEMATHESIS_HOOKS: 'hooks', PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: '1', NO_COLOR: '1' };
  const child = spawn(path.join(path.dirname(python), 'schemathesis'), args, { cwd: folder, env, stdio: 'inherit' });
  return new Promise((done, failed) => {
    child.on('error', failed);
    child.on('exit', (status, signal) => done(signal ? 1 : status));
  });
}
