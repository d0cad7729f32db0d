// The browser and its visitors. Each visitor has its own cookies, storage and cache, like a person at another machine.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { PATIENCE } from './wait.mjs';
import { Watch } from './watch.mjs';
import { READY, WebUI } from './webui.mjs';

export const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];
// Tall enough for the side bar's queue to show five pictures.
const WINDOW = { width: 1280, height: 1350 };

export class Chrome {
  #browser;
  #visitors = [];
  #pages = new Map(); // page -> its WebUI

  /** Starts a browser that reaches the server at `url` and nothing else: requests to other servers fail at once. */
  static async start({ url, executable, shots }) {
    const chrome = new Chrome();
    const { hostname } = new URL(url);
    chrome.url = url;
    chrome.shots = shots;
    mkdirSync(shots, { recursive: true });
    chrome.watch = new Watch(url, path.join(shots, 'console.log'));
    chrome.#browser = await chromium.launch({
      executablePath: executable,
      timeout: PATIENCE,
      args: [...FLAGS, `--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE ${hostname}`],
    });
    return chrome;
  }

  /** Opens the web UI as a new visitor. `more` are options of Playwright's contexts. */
  async visit(more = {}) {
    const context = await this.#browser.newContext({ viewport: WINDOW, ...more });
    context.setDefaultTimeout(PATIENCE);
    context.setDefaultNavigationTimeout(READY);
    await context.addInitScript(help);
    this.#visitors.push(context);
    return this.#open(context);
  }

  async #open(context) {
    const page = await context.newPage();
    this.watch.page(page);
    const ui = new WebUI(page, this.watch);
    this.#pages.set(page, ui);
    await ui.open(this.url);
    return ui;
  }

  /** Closes a visitor's tab and opens the web UI in a new one. */
  async reopen(ui) {
    const context = ui.page.context();
    this.watch.leaving(ui.page);
    this.#pages.delete(ui.page);
    await ui.page.close();
    return this.#open(context);
  }

  /** Takes a screenshot of every open page, for people to look at. */
  async shoot(name) {
    const pages = this.#visitors.flatMap((context) => context.pages());
    for (const [n, page] of pages.entries()) {
      const file = path.join(this.shots, `${name}${n ? `-${n + 1}` : ''}.png`);
      await page.screenshot({ path: file, timeout: 15_000 }).catch(() => {}); // a page that hangs gets no screenshot
    }
  }

  /** What every open page shows, in words, for the message of a failure. */
  seen() {
    return Promise.all(this.#visitors.flatMap((context) => context.pages()).map((page) => Promise.race([
      this.#pages.get(page).seen().catch((error) => `nothing: ${error.message}`),
      pause(15_000, 'nothing: it hangs', { ref: false }),
    ])));
  }

  /** Closes the pages of all visitors. */
  async leave() {
    this.#pages.clear();
    for (const context of this.#visitors.splice(0)) {
      for (const page of context.pages()) this.watch.leaving(page);
      await context.close();
    }
  }

  async stop() {
    await this.leave();
    await this.#browser.close();
  }
}

/** Runs in the page. */
function help() {
  /** What an image looks like: its size and the colour of its middle. */
  window.comfyhubLook = (image) => {
    const canvas = document.createElement('canvas');
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const [r, g, b] = context.getImageData(canvas.width >> 1, canvas.height >> 1, 1, 1).data;
    return { width: canvas.width, height: canvas.height, color: (r << 16) | (g << 8) | b };
  };
  /** A PNG of one colour, as a data URL. */
  window.comfyhubPaint = (color) => {
    const canvas = document.createElement('canvas');
    canvas.width = 80;
    canvas.height = 80;
    const context = canvas.getContext('2d');
    context.fillStyle = `#${color.toString(16).padStart(6, '0')}`;
    context.fillRect(0, 0, 80, 80);
    return canvas.toDataURL('image/png');
  };
}
