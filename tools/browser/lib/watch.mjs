// Notes what goes wrong in the pages without a step noticing: errors on the console, exceptions, requests that fail,
// sockets that close. Each becomes one line without ids, random names and the server's address, so that the lines of two
// servers can be compared. A log holds everything that the consoles say, and each request that went wrong.
import { appendFileSync, writeFileSync } from 'node:fs';

export class Watch {
  #leaving = new Set();

  constructor(url, log) {
    this.log = log;
    writeFileSync(log, '');
    this.origin = new URL(url).origin;
    this.below = new URL(url).pathname.replace(/\/$/, '');
    this.troubles = new Map(); // line -> the first one in full
  }

  /** What is noted from now on belongs to this step. */
  begin(step) {
    this.#write(`--- ${step}`);
  }

  #write(text) {
    appendFileSync(this.log, `${new Date().toISOString()} ${text}\n`);
  }

  page(page) {
    page.on('console', (message) => {
      this.#write(`${message.type()}: ${message.text()}`);
      // The console's own line about a failed request says less than the response.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) this.#note(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => this.#note(`exception: ${error.message}`));
    page.on('response', (response) => {
      if (this.#ours(response.url()) && response.status() >= 400) {
        this.#note(`${response.status()} ${response.request().method()} ${this.#path(response.url())}`);
      }
    });
    page.on('requestfailed', (request) => {
      const reason = request.failure()?.errorText;
      // The page aborts requests itself, mostly while it is being left.
      if (this.#ours(request.url()) && reason !== 'net::ERR_ABORTED') this.#note(`${reason} ${request.method()} ${this.#path(request.url())}`);
    });
    page.on('websocket', (socket) => {
      this.#leaving.delete(page);
      const closed = (why) => {
        if (!this.#leaving.has(page)) this.#note(`socket ${this.#path(socket.url())} ${why}`);
      };
      socket.on('close', () => closed('closed'));
      socket.on('socketerror', (error) => closed(error));
    });
  }

  /** The page is about to be reloaded or closed, so its socket may close. */
  leaving(page) {
    this.#leaving.add(page);
  }

  #ours = (url) => url.startsWith(this.origin);

  #path(url) {
    const { pathname, searchParams } = new URL(url);
    searchParams.delete('rand');
    const query = searchParams.size ? `?${searchParams}` : '';
    if (!pathname.startsWith(`${this.below}/`)) return `outside ${pathname}${query}`;
    return pathname.slice(this.below.length) + query;
  }

  #note(text) {
    this.#write(`trouble: ${text}`);
    const line = text
      .replaceAll(this.origin, '')
      .replace(/[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}/g, 'ID')
      .replace(/(browser-)[a-z0-9]{6}/g, '$1…')
      .replace(/\s+/g, ' ')
      .slice(0, 200);
    if (!this.troubles.has(line)) this.troubles.set(line, text);
  }
}
