// What must hold for every answer. The checks' own client looks at each one that it gets.
import { request } from 'node:http';
import { must } from './case.mjs';

/** Headers that may occur only once. A client that keeps the first or the last of two would misread them. */
const SINGLE = ['content-disposition', 'content-encoding', 'content-length', 'content-type', 'date', 'etag', 'last-modified', 'location', 'server'];

/** Hop-by-hop headers: those of the hub's own connection to an instance must not reach a client. */
const HOP_BY_HOP = ['keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'upgrade'];

/**
 * Fails unless a strict parser accepts the JSON: UTF-8, no NaN or Infinity (Python writes and reads both, but browsers
 * refuse the whole answer). The body can still be read afterwards.
 */
export async function expectStrict(path, answer) {
  if (!/^application\/json\b/.test(answer.headers.get('content-type') ?? '')) return;
  const bytes = await answer.clone().arrayBuffer();
  if (!bytes.byteLength) return; // HEAD, and 304
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    JSON.parse(text);
  } catch (error) {
    throw new Error(`${path}: JSON that strict parsers refuse: ${error.message}: ${text?.slice(0, 300)}`);
  }
}

/** Sends one request on its own connection. The answer's headers are given as they came, none joined with another. */
export function raw(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((done, fail) => {
    const asked = request(url, { method, headers, agent: false, timeout: 30_000 }, (answer) => {
      const chunks = [];
      answer.on('data', (chunk) => chunks.push(chunk));
      answer.on('error', fail);
      answer.on('end', () => {
        const lines = [];
        for (let i = 0; i < answer.rawHeaders.length; i += 2) lines.push([answer.rawHeaders[i].toLowerCase(), answer.rawHeaders[i + 1]]);
        done({ status: answer.statusCode, lines, headers: Object.fromEntries(lines), body: Buffer.concat(chunks) });
      });
    });
    asked.on('timeout', () => asked.destroy(new Error(`${method} ${url}: nothing after 30 s`)));
    asked.on('error', fail);
    asked.end(body);
  });
}

/** Fails unless the headers are those of one server: each once, and none of another connection. */
export function expectHeaders(what, { lines }) {
  for (const name of SINGLE) {
    const values = lines.filter(([header]) => header === name).map(([, value]) => value);
    must(values.length <= 1, `${what}: ${name} stands ${values.length} times: ${values.join(' | ')}`);
  }
  for (const name of ['date', 'server']) must(lines.some(([header]) => header === name), `${what}: no ${name}`);
  for (const name of HOP_BY_HOP) must(!lines.some(([header]) => header === name), `${what}: ${name} is for one connection only`);
}
