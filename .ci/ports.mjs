#!/usr/bin/env node
// Free ports of loopback, for programs that are started a moment later: `ports.mjs N` prints N of them.
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

// The system gives away ports from 32768 on: one of those that is free now may be somebody's outgoing connection, or an agent's,
// before the program listens on it.
const lowest = 14_000;
const highest = 32_000;
let last = lowest + Math.floor(Math.random() * 10_000);

/** So many ports that nobody listens on, over TCP or UDP, each given once. */
export async function freePorts(count) {
  const ports = [];
  while (ports.length < count) {
    const port = last < highest ? last + 1 : lowest;
    last = port; // somebody else may ask before the next line has ended
    if (await isFree(port)) ports.push(String(port));
  }
  return ports;
}

async function isFree(port) {
  const tcp = createServer();
  const udp = createSocket('udp4');
  const listens = (it, listen) => new Promise((resolve) => {
    it.once('error', () => resolve(false));
    it.once('listening', () => it.close(() => resolve(true)));
    listen();
  });
  return await listens(tcp, () => tcp.listen(port, '127.0.0.1')) && listens(udp, () => udp.bind(port, '127.0.0.1'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log((await freePorts(Number(process.argv[2]))).join(' '));
