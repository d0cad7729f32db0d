// Cancelling ends the prompts that were meant, and no others, at each point of a prompt's life.
import { randomUUID } from 'node:crypto';
import { main, must, same, sleep, until } from '../lib/case.mjs';
import { PATIENCE, Server, label } from '../lib/comfy.mjs';
import { paint } from '../lib/graph.mjs';

/** Starts `count` prompts that run for a while. With one for each instance, the next prompt waits. */
async function occupy(server, count, seconds) {
  const work = await server.work(seconds);
  return Promise.all(Array.from({ length: count }, async () => {
    const client = await server.connect();
    const graph = paint({ work });
    const id = await client.submit(graph);
    await client.frame((frame) => frame.type === 'execution_start' && frame.data.prompt_id === id, PATIENCE, `start of ${id}`);
    return { client, graph, id };
  }));
}

const interrupt = (server, body) => server.post('/interrupt', body);

/** Fails unless a prompt was interrupted: on the socket, in history and in the queue. */
async function expectInterrupted(server, { client, id }) {
  const entry = await client.end(id);
  const types = client.of(id).map((frame) => frame.type);
  must(types.includes('execution_interrupted'), `no execution_interrupted: ${client.of(id).map(label).join(' ')}`);
  must(!types.includes('execution_success') && !types.includes('execution_error'), `another end too: ${client.of(id).map(label).join(' ')}`);
  same([entry.status.status_str, entry.status.completed], ['error', false], 'status in history');
  must(entry.status.messages.some(([type]) => type === 'execution_interrupted'), 'no execution_interrupted in history');
  same(await server.place(id), null, 'place in the queue');
}

/** A waiting prompt that is deleted leaves the queue, never runs and is never in history; the others go on. */
async function pending({ url, instances }) {
  const server = new Server(url);
  const busy = await occupy(server, instances, 10);
  const client = await server.connect();
  const id = await client.submit(paint());
  const next = paint();
  const after = await client.submit(next);
  same(await server.place(id), 'pending', 'place before');
  await server.post('/queue', { delete: [id] });
  same(await server.place(id), null, 'place after');
  const entry = await client.end(after);
  await server.expect(entry.outputs, next, 'the prompt behind the deleted one');
  same(await server.history(id), undefined, 'history of the deleted prompt');
  must(!client.of(id).some((frame) => frame.type === 'execution_start'), 'the deleted prompt was started');
  for (const { client: other, id: running, graph } of busy) {
    const { status, outputs } = await other.end(running);
    same(status.status_str, 'success', 'status of a prompt that was running meanwhile');
    await server.expect(outputs, graph, 'a prompt that was running meanwhile');
  }
}

/** Interrupting a running prompt by its id ends it and leaves another client's prompt alone. */
async function running({ url, instances }) {
  const server = new Server(url);
  const [victim] = await occupy(server, 1, 12);
  const other = await server.connect();
  const graph = paint({ work: await server.work(2) });
  const bystander = await other.submit(graph);
  if (instances > 1) {
    await other.frame((frame) => frame.type === 'execution_start', PATIENCE, 'start of the bystander, with another instance idle');
  }
  await interrupt(server, { prompt_id: victim.id });
  await expectInterrupted(server, victim);
  const entry = await other.end(bystander);
  same(entry.status.status_str, 'success', 'status of the bystander');
  await server.expect(entry.outputs, graph, 'the bystander');
  other.onlyOwn();
}

/** An interrupt without an id, as most clients send it, ends the caller's running prompt. */
async function bare({ url }) {
  const server = new Server(url);
  for (const body of ['', '{}']) {
    const [victim] = await occupy(server, 1, 12);
    const answer = await server.fetch('/interrupt', { method: 'POST', ...(body ? { body, headers: { 'content-type': 'application/json' } } : {}) });
    same([answer.status, await answer.text()], [200, ''], 'answer of /interrupt');
    await expectInterrupted(server, victim);
    await victim.client.run(paint()); // and the interrupt is not left over for the next one
  }
}

/** A bare interrupt ends the caller's prompt, not another caller's that has run for longer. */
async function bareScoped({ url, instances }) {
  const mine = new Server(url, 'caller-one');
  const other = new Server(url, 'caller-two');
  const client = await other.connect();
  const graph = paint({ work: await other.work(6) });
  let bystander;
  if (instances > 1) {
    bystander = await client.submit(graph);
    await client.frame((frame) => frame.type === 'execution_start', PATIENCE, 'start of the bystander');
  }
  const [victim] = await occupy(mine, 1, 12);
  bystander ??= await client.submit(graph); // with one instance it waits behind
  await mine.fetch('/interrupt', { method: 'POST' });
  await expectInterrupted(mine, victim);
  const entry = await client.end(bystander);
  same(entry.status.status_str, 'success', "status of the other caller's prompt");
  await other.expect(entry.outputs, graph, "the other caller's prompt");
}

/** Interrupting a prompt that waits, has ended or never existed changes nothing. */
async function unknown({ url, instances }) {
  const server = new Server(url);
  const client = await server.connect();
  const { id: ended } = await client.run(paint());
  const busy = await occupy(server, instances, 10);
  const waiting = paint();
  const id = await client.submit(waiting);
  await interrupt(server, { prompt_id: randomUUID() });
  await interrupt(server, { prompt_id: ended });
  await interrupt(server, { prompt_id: id });
  await server.post('/queue', { delete: [ended, randomUUID()] });
  for (const { client: other, id: running, graph } of busy) {
    const entry = await other.end(running);
    same(entry.status.status_str, 'success', 'status of a running prompt');
    await server.expect(entry.outputs, graph, 'a running prompt');
  }
  const entry = await client.end(id);
  await server.expect(entry.outputs, waiting, 'a pending prompt that was named in an interrupt');
  must(await server.history(ended), 'an ended prompt lost its history');
}

/** A prompt that is deleted at any moment around its start either ends once or is never seen. */
async function race({ url }) {
  const server = new Server(url);
  const client = await server.connect();
  const work = await server.work(0.7);
  for (const delay of [0, 5, 20, 60]) {
    const graph = paint({ work });
    const id = await client.submit(graph);
    await sleep(delay);
    await server.post('/queue', { delete: [id] });
    const gone = await until(PATIENCE, `end of ${id}`, async () => ((await server.place(id)) ? null : { entry: await server.history(id) }));
    if (gone.entry) await server.expect(gone.entry.outputs, graph, 'a prompt that was too far to be deleted');
    else must(!client.of(id).some((frame) => frame.type === 'executed'), 'a deleted prompt was run');
  }
  await client.run(paint());
}

/** Clearing the queue removes what waits and leaves what runs. */
async function clear({ url, instances }) {
  const server = new Server(url);
  const client = await server.connect();
  const work = await server.work(10);
  const graphs = Array.from({ length: instances }, () => paint({ work }));
  const started = await Promise.all(graphs.map((graph) => client.submit(graph)));
  await until(PATIENCE, 'all started', async () => {
    const places = await Promise.all(started.map((id) => server.place(id)));
    return places.every((place) => place !== 'pending');
  });
  const waiting = await Promise.all([client.submit(paint()), client.submit(paint())]);
  await server.post('/queue', { clear: true });
  for (const id of waiting) {
    same(await server.place(id), null, 'place of a cleared prompt');
    same(await server.history(id), undefined, 'history of a cleared prompt');
  }
  for (const [i, id] of started.entries()) {
    const entry = await server.ended(id);
    await server.expect(entry.outputs, graphs[i], 'a prompt that ran while the queue was cleared');
  }
}

/** Clearing removes the caller's waiting prompts and leaves those of others. */
async function clearScoped({ url, instances }) {
  const mine = new Server(url, 'caller-one');
  const other = new Server(url, 'caller-two');
  await occupy(mine, instances, 10);
  const client = await mine.connect();
  const doomed = await client.submit(paint());
  const neighbour = await other.connect();
  const graph = paint();
  const kept = await neighbour.submit(graph);
  await mine.post('/queue', { clear: true });
  same(await mine.place(doomed), null, "place of the caller's prompt");
  const entry = await neighbour.end(kept);
  await other.expect(entry.outputs, graph, "the other caller's prompt");
  same(await mine.history(doomed), undefined, 'history of the cleared prompt');
}

/** Submits prompts of one client. The client sees the first one run and the others wait; a hub may already run those too. */
async function line(server, client, instances, seconds) {
  const work = await server.work(seconds);
  const graphs = Array.from({ length: instances + 2 }, () => paint({ work }));
  const ids = [await client.submit(graphs[0])];
  await client.frame((frame) => frame.type === 'execution_start' && frame.data.prompt_id === ids[0], PATIENCE, `start of ${ids[0]}`);
  for (const graph of graphs.slice(1)) ids.push(await client.submit(graph));
  await until(PATIENCE, 'every instance busy', async () => {
    const { running } = await server.counts();
    return running >= instances;
  });
  return { ids, graphs };
}

/** Fails unless a prompt is gone: it is not listed, its client saw nothing of it, and if history has it, because it ran elsewhere, it was interrupted. */
async function expectNothing(server, client, id) {
  same(await server.place(id), null, 'place of a deleted prompt');
  const entry = await server.history(id);
  if (entry) same(entry.status.status_str, 'error', 'history of a deleted prompt');
  must(!client.of(id).some((frame) => frame.type !== 'status'), `messages of a deleted prompt: ${client.of(id).map(label).join(' ')}`);
}

/** "Cancel all" in plugins deletes what waits and interrupts what runs. Nothing is left, in either order. */
async function all({ url, instances }) {
  for (const order of ['delete first', 'interrupt first']) {
    const server = new Server(url, `caller-${randomUUID()}`);
    const client = await server.connect();
    const { ids: [shown, ...waiting] } = await line(server, client, instances, 12);
    const bare = () => server.fetch('/interrupt', { method: 'POST' });
    if (order === 'delete first') {
      await server.post('/queue', { delete: waiting });
      for (const id of waiting) await expectNothing(server, client, id);
      await bare();
    } else {
      await bare();
      await server.post('/queue', { delete: waiting });
    }
    await expectInterrupted(server, { client, id: shown });
    for (const id of waiting) {
      await until(PATIENCE, `${order}: end of ${id}`, async () => !(await server.place(id)));
      if (order === 'delete first') await expectNothing(server, client, id);
      else must((await server.history(id))?.status.status_str !== 'success', `${order}: ${id} went on to success`);
    }
    await client.run(paint()); // and nothing is left over for the next one
  }
}

/** Deleting one waiting prompt and then interrupting ends the first and the deleted one; the others go on. */
async function some({ url, instances }) {
  const server = new Server(url, `caller-${randomUUID()}`);
  const client = await server.connect();
  const { ids: [shown, deleted, ...rest], graphs: [, , ...drawn] } = await line(server, client, instances, 6);
  await server.post('/queue', { delete: [deleted] });
  await server.fetch('/interrupt', { method: 'POST' });
  await expectInterrupted(server, { client, id: shown });
  for (const [i, id] of rest.entries()) {
    const entry = await client.end(id);
    same(entry.status.status_str, 'success', 'status of a prompt that nobody named');
    await server.expect(entry.outputs, drawn[i], 'a prompt that nobody named');
  }
  await expectNothing(server, client, deleted);
}

await main({ all, some, pending, running, bare, bareScoped, unknown, race, clear, clearScoped });
