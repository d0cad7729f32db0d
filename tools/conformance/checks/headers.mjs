// The headers of answers, as they are on the wire.
import { brief, main, must, same } from '../lib/case.mjs';
import { expectHeaders, raw } from '../lib/answer.mjs';
import { Server } from '../lib/comfy.mjs';
import { paint } from '../lib/graph.mjs';

/** Answers of all kinds: the server's own, files, pages, errors. */
async function single({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const { id, file } = await client.run(paint());
  const paths = [
    '/', '/prompt', '/api/prompt', '/queue', '/history?max_items=1', `/history/${id}`, '/system_stats', '/features', '/extensions', '/embeddings',
    '/object_info/EmptyImage', '/models', '/settings', '/users', `/view?${new URLSearchParams(file)}`, '/view?filename=there-is-none.png', '/nobody/knows/this',
  ];
  for (const path of paths) expectHeaders(`GET ${path}`, await raw(url + path));
  for (const path of ['/prompt', '/queue', `/view?${new URLSearchParams(file)}`]) {
    const head = await raw(url + path, { method: 'HEAD' });
    expectHeaders(`HEAD ${path}`, head);
    same(head.body.length, 0, `bytes of HEAD ${path}`);
  }
  for (const [path, body] of [['/prompt', '{}'], ['/queue', '{"delete": []}'], ['/history', '{"delete": []}'], ['/interrupt', '{"prompt_id": "none"}']]) {
    expectHeaders(`POST ${path}`, await raw(url + path, { method: 'POST', body, headers: { 'content-type': 'application/json' } }));
  }
}

/** Pages of other sites are refused if the server is at a loopback address, and may never read an answer. */
async function origin({ url }) {
  const { host, hostname } = new URL(url);
  const asked = async (method, headers) => {
    const answer = await raw(`${url}/prompt`, { method, headers });
    const what = `${method} with ${brief(headers)}`;
    const cors = answer.lines.filter(([name]) => name.startsWith('access-control-'));
    must(!cors.length, `${what}: ${brief(cors)}`);
    return { status: answer.status, what };
  };
  const expect = async (status, method, headers) => {
    const answer = await asked(method, headers);
    same(answer.status, status, answer.what);
  };
  await expect(200, 'GET', {});
  await expect(200, 'GET', { origin: `http://${host}` });
  await expect(200, 'GET', { 'sec-fetch-site': 'same-origin', origin: `http://${host}` });
  await expect(200, 'OPTIONS', { origin: `http://${host}`, 'access-control-request-method': 'POST' });
  if (!['127.0.0.1', 'localhost', '[::1]'].includes(hostname)) return 'not at loopback: strange origins not asked';
  await expect(403, 'GET', { origin: 'http://elsewhere.example' });
  await expect(403, 'POST', { origin: 'http://elsewhere.example' });
  await expect(403, 'OPTIONS', { origin: 'http://elsewhere.example', 'access-control-request-method': 'POST' });
  return '';
}

await main({ single, origin });
