// Installs the pinned clients into a cache folder outside the repository. Later runs fetch nothing.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..');

/** Where clients are kept unless told otherwise. */
export const defaultCache = path.join(process.env.XDG_CACHE_HOME || path.join(homedir(), '.cache'), 'comfyhub-conformance');

/** Installs the clients and returns the programs that run the cases. Without Python, it says that its clients are skipped. */
export function install({ cache, python }, withPython, say) {
  const programs = { node: process.execPath, modules: installNode(cache, say) };
  if (!withPython) return programs;
  try {
    programs.python = installPython({ cache, python }, 'requirements.txt', say);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    say(`no ${python} here: the Python clients are skipped`);
  }
  return programs;
}

/** The folder that holds node_modules. */
function installNode(cache, say) {
  const files = ['package.json', 'package-lock.json', '.npmrc'];
  return once(cache, 'node', [...files.map(read), process.version.split('.')[0]], (folder) => {
    say('installing the JavaScript clients');
    for (const file of files) copyFileSync(path.join(root, file), path.join(folder, file));
    run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--omit=peer'], folder);
  });
}

/** The Python of a virtual environment that holds what a file of requirements names. */
export function installPython({ cache, python }, requirements, say) {
  const version = execFileSync(python, ['-c', 'import sys; print(sys.version_info[:2], sys.prefix)'], { encoding: 'utf8' });
  const folder = once(cache, 'python', [read(requirements), version], (target) => {
    say(`installing ${requirements}`);
    run(python, ['-m', 'venv', target], root);
    run(path.join(target, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', '--no-input', '-r', path.join(root, requirements)], root);
  });
  return path.join(folder, 'bin', 'python');
}

const read = (file) => readFileSync(path.join(root, file), 'utf8');

/** Fills a folder named after a hash of `parts`, unless that was done before. */
function once(cache, kind, parts, fill) {
  const hash = createHash('sha256').update(parts.join('\0')).digest('hex').slice(0, 12);
  const folder = path.join(cache, `${kind}-${hash}`);
  const stamp = path.join(folder, '.complete');
  if (existsSync(stamp)) return folder;
  rmSync(folder, { recursive: true, force: true }); // half an installation
  mkdirSync(folder, { recursive: true });
  fill(folder);
  writeFileSync(stamp, '');
  return folder;
}

/** Runs a program, and again after each pause if it fails: package indexes and networks have bad moments. */
function run(program, args, cwd, pauses = [5_000, 20_000]) {
  try {
    execFileSync(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 26 });
  } catch (error) {
    const [pause, ...more] = pauses;
    if (pause === undefined || error.code === 'ENOENT') {
      throw new Error(`${program} ${args.join(' ')}: ${error.message}\n${error.stdout ?? ''}\n${error.stderr ?? ''}`);
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pause);
    run(program, args, cwd, more);
  }
}
