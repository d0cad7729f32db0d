// Ten programs at once, five of each client of A1111's API: each must get its own pictures, all of them.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { main, must, Skip } from '../lib/case.mjs';

async function ten({ url }) {
  const python = process.env.CONFORMANCE_CLIENT_PYTHON;
  if (!python) throw new Skip('no Python');
  const programs = Array.from({ length: 5 }, () => [[python, 'webui_api.py'], [process.execPath, 'node-sd-webui.mjs']]).flat()
    .map(([program, file]) => new Client(program, file, url));
  await Promise.all(programs.map(({ ready }) => ready));
  for (const { child } of programs) child.stdin.end(); // all begin
  const endings = await Promise.all(programs.map(({ ended }) => ended));
  const failures = endings.filter(({ code }) => code !== 0);
  must(!failures.length, `${failures.length} of ${programs.length} clients failed:\n${failures.map(({ output }) => output).join('\n')}`);
}

/** A program that says when it is ready, and begins when its input ends. */
class Client {
  constructor(program, file, url) {
    const { CONFORMANCE_RESULT: _, ...env } = process.env; // its result goes to its output
    this.child = spawn(program, [path.join(import.meta.dirname, file), '--url', url, '--case', 'turns'], { env, stdio: ['pipe', 'pipe', 'pipe'] });
    let output = '';
    let ready;
    this.ready = new Promise((done) => {
      ready = done;
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on('data', (chunk) => {
        output += chunk;
        if (/^ready$/m.test(output)) ready();
      });
    }
    this.child.stdin.on('error', () => {}); // it has ended early; its code says so
    this.ended = new Promise((done) => {
      this.child.on('error', (error) => done({ code: -1, output: `${file}: ${error.message}` }));
      this.child.on('close', (code) => done({ code, output: `${file}: ${output}` }));
    });
    void this.ended.then(ready);
  }
}

await main({ ten });
