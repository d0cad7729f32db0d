// A machine that lies: a server of nodes whose files are pages that try to pause the fleet, in front of an honest one.
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';

/** Runs as HTML, as XHTML and as SVG, marks the page that ran it, and names it to the hub. */
export const evil = '<svg xmlns="http://www.w3.org/2000/svg"><script>'
  + 'document.documentElement.setAttribute("ran", "");'
  + 'fetch("/hub/pause?ran=" + encodeURIComponent(location.href), {method: "POST"})</script></svg>';

/** Listens on `port`: whatever has "evil" in its path is evil, of the type that `types` has for its ending; the rest is the server's at `honest`. */
export async function hostile(port, honest, types) {
  const { hostname, port: behind } = new URL(honest);
  const server = http.createServer((request, answer) => {
    const { pathname } = new URL(request.url, honest);
    if (pathname.includes('evil')) {
      answer.writeHead(200, { 'Content-Type': types.get(path.extname(pathname)) ?? 'text/html', 'Content-Disposition': 'inline', 'Content-Security-Policy': "script-src * 'unsafe-inline'" });
      answer.end(evil);
      return;
    }
    const onward = http.request({ hostname, port: behind, method: request.method, path: request.url, headers: request.headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    onward.on('error', () => answer.destroy());
    request.pipe(onward);
  });
  const sockets = new Set();
  server.on('upgrade', (request, socket, head) => {
    const lines = [`${request.method} ${request.url} HTTP/1.1`];
    for (let n = 0; n < request.rawHeaders.length; n += 2) lines.push(`${request.rawHeaders[n]}: ${request.rawHeaders[n + 1]}`);
    const onward = net.connect(Number(behind), hostname, () => {
      onward.write(`${lines.join('\r\n')}\r\n\r\n`);
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
    sockets.add(socket);
    for (const [one, other] of [[socket, onward], [onward, socket]]) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  await new Promise((listening, failed) => {
    server.once('error', failed);
    server.listen(port, '127.0.0.1', listening);
  });
  return {
    url: `http://127.0.0.1:${port}`,
    close: () => {
      server.close();
      server.closeAllConnections();
      for (const socket of sockets) socket.destroy();
    },
  };
}
