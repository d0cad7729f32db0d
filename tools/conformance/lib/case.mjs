// How a case reports: one process runs one case and writes its result at the end, as JSON, to the file that
// CONFORMANCE_RESULT names, or else to stdout. The runner uses the file: a client's threads print to stdout at any
// time, even into the middle of a line.
// The runner starts `node FILE --url URL --case NAME --instances N`.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs } from 'node:util';

// Clients live in a cache folder outside the repository, so they are not found by walking up from here.
const cache = process.env.CONFORMANCE_NODE_MODULES;
const requireClient = createRequire(path.join(cache ?? import.meta.dirname, 'case.cjs'));

/** Loads an installed client library. */
export const library = (name) => requireClient(name);

/** Thrown when a server lacks what a case needs, which is not the server's fault. */
export class Skip extends Error {}

/** Fails the case unless the condition holds. */
export function must(condition, message) {
  if (!condition) throw new Error(message);
}

/** Fails the case unless both have the same JSON. */
export function same(got, want, what) {
  must(JSON.stringify(got) === JSON.stringify(want), `${what}: got ${brief(got)}, want ${brief(want)}`);
}

/** JSON short enough for a failure's detail. */
export function brief(value) {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 400 ? `${text.slice(0, 400)}…` : text;
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Fails with `what` when a promise takes longer than `ms`, so that a hung client's failure names what it waited for. */
export function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${what}: nothing after ${ms / 1000} s`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Polls until `probe` returns a true value. */
export async function until(ms, what, probe, every = 50) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value) return value;
    must(Date.now() < end, `${what}: not within ${ms / 1000} s`);
    await sleep(every);
  }
}

/** Runs the one of `cases` that the command line names, and ends the process. */
export async function main(cases) {
  const { values } = parseArgs({
    options: {
      url: { type: 'string' },
      case: { type: 'string' },
      instances: { type: 'string', default: '1' },
    },
  });
  const run = cases[values.case];
  if (!run) end('fail', `no case ${values.case}; there are ${Object.keys(cases).join(', ')}`);
  // Clients also throw from their own callbacks; a case that ends this way has failed.
  process.on('uncaughtException', (error) => end('fail', `uncaught: ${error.stack}`));
  process.on('unhandledRejection', (error) => end('fail', `unhandled: ${error?.stack ?? brief(error)}`));
  try {
    const detail = await run({ url: values.url.replace(/\/+$/, ''), instances: Number(values.instances) });
    end('pass', detail ?? '');
  } catch (error) {
    end(error instanceof Skip ? 'skip' : 'fail', error instanceof Skip ? error.message : (error?.stack ?? brief(error)));
  }
}

function end(status, detail) {
  const result = JSON.stringify({ status, detail });
  const exit = () => process.exit(status === 'fail' ? 1 : 0); // clients leave sockets and timers open
  if (!process.env.CONFORMANCE_RESULT) return void process.stdout.write(`\nRESULT ${result}\n`, exit);
  fs.writeFileSync(process.env.CONFORMANCE_RESULT, result);
  exit();
}
