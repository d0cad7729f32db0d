// Runs the cases on columns. A column is one server, a plain ComfyUI or a hub, and every case runs against it in turn.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..');
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/**
 * A column has a `name`, `hub` (true for a hub), the `instances` behind it, `version` (ComfyUI's), `diagonal` (false:
 * without the slow clients), `site` (words of the hub's site: only the cases that ask for them), `dialect` (likewise: the
 * API that its cases speak), `open()`, which returns its URL once it can be used, and `close(failed)`.
 *
 * At most `atOnce` columns run side by side; those with the same `servers` run one after another.
 * Returns the rows of the table: for each case its result in each column.
 */
export async function runAll(columns, cases, { programs, atOnce = 1, say, verbose = false }) {
  const rows = cases.map(({ name, hubOnly, strict }) => ({ name, hubOnly, strict, results: {} }));
  const width = Math.max(...columns.map(({ name }) => name.length));
  const waiting = [...columns];
  const busy = new Set();

  const next = () => {
    const index = waiting.findIndex(({ servers }) => servers === undefined || !busy.has(servers));
    return index < 0 ? undefined : waiting.splice(index, 1)[0];
  };
  const worker = async () => {
    while (waiting.length) {
      const column = next();
      if (!column) {
        await pause(200); // every column left shares its servers with one that is running
        continue;
      }
      busy.add(column.servers);
      await runColumn(column);
      busy.delete(column.servers);
    }
  };
  const runColumn = async (column) => {
    const begin = Date.now();
    const put = (item, row, result) => {
      row.results[column.name] = result;
      const note = result.status === 'fail' ? headline(result.detail) : result.detail;
      say(`${result.status.padEnd(4)} ${column.name.padEnd(width)} ${(result.ms / 1000).toFixed(1).padStart(6)} s  ${item.name}${note ? `: ${note.slice(0, 160)}` : ''}`);
    };
    const mine = cases.map((item, i) => [item, rows[i]]).filter(([item]) => suits(item, column));
    if (!mine.length) return;
    try {
      column.url = await column.open();
      column.version ??= await versionOf(column.url);
      for (const [item, row] of mine) {
        await settle(column);
        put(item, row, await turns(item, column, programs, verbose));
      }
    } catch (error) {
      // A server that cannot be used fails all its cases.
      for (const [item, row] of mine) row.results[column.name] ??= { status: 'fail', detail: `${column.name}: ${error.stack ?? error}`, ms: 0 };
      say(`fail ${column.name}: ${error.message}`);
    } finally {
      await column.close?.(mine.some(([, row]) => row.results[column.name].status === 'fail'));
    }
    say(`     ${column.name}: ${mine.length} cases in ${Math.round((Date.now() - begin) / 1000)} s`);
  };
  await Promise.all(Array.from({ length: Math.max(1, atOnce) }, worker));
  return rows;
}

function suits({ hubOnly, diagonal, site, dialect }, column) {
  if (dialect !== column.dialect) return false;
  if (!column.hub) return !hubOnly;
  return site === column.site && (column.diagonal !== false || !diagonal);
}

/** The version of ComfyUI that a server reports. */
export async function versionOf(url) {
  const answer = await fetch(`${url}/system_stats`, { signal: AbortSignal.timeout(30_000) });
  return (await answer.json()).system.comfyui_version;
}

/** The most telling line of a failure: the one that begins JavaScript's traces and ends Python's. */
function headline(detail) {
  const lines = detail.trim().split('\n');
  return lines.find((line) => /^\w*(Error|Exception)\b/.test(line)) ?? lines[0];
}

/** Waits until the queue is empty. After 3 s it ends what a failed case left behind, so that the next case does not fail. */
async function settle({ url, hub, dialect }) {
  if (!hub && dialect) return; // such a server has no queue to look at
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
      // The next case shows better what is wrong.
    }
    await pause(200);
  }
}

/**
 * Runs one case. A published client gets a second turn when it fails: some lose races of their own now and then on a busy
 * machine, even against a plain ComfyUI. If the second turn passes, the report shows what the first said. Our own checks
 * get one turn.
 */
async function turns(item, column, programs, verbose) {
  const first = await run(item, column, programs, verbose);
  if (first.status !== 'fail' || !item.published) return first;
  await settle(column);
  const second = await run(item, column, programs, verbose);
  if (second.status === 'fail') return second;
  return { ...second, ms: first.ms + second.ms, before: first.detail };
}

/** Runs one case in its own process group, and ends the group when its time is up. */
function run(item, { url, instances = 1 }, programs, verbose) {
  const program = item.python ? programs.python : programs.node;
  if (!program) return { status: 'skip', detail: 'no Python', ms: 0 };
  const start = Date.now();
  const result = path.join(os.tmpdir(), `conformance-${process.pid}-${Math.random().toString(36).slice(2)}.json`);
  const child = spawn(program, [path.join(root, item.file), '--url', url, '--case', item.case, '--instances', String(instances)], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env, CONFORMANCE_RESULT: result, CONFORMANCE_NODE_MODULES: programs.modules, CONFORMANCE_CLIENT_PYTHON: programs.python ?? '',
      PYTHONDONTWRITEBYTECODE: '1', NO_PROXY: '*',
    },
  });
  let output = '';
  const take = (chunk) => {
    output = (output + chunk).slice(-200_000);
    if (verbose) process.stderr.write(chunk);
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
      const said = reported(result);
      if (late) end({ status: 'fail', detail: `hung: ended after ${item.seconds} s\n${tail}` });
      else if (said) end(said);
      else end({ status: 'fail', broken: true, detail: `ended without a result (${signal ?? code})\n${tail}` });
    });
  });
}

/** The result that a case wrote to its file, which is then removed; undefined if it wrote none. */
function reported(file) {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  } finally {
    fs.rmSync(file, { force: true });
  }
}
