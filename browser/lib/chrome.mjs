// The browser, and visitors: each has its own cookies, storage and cache, as a person at another machine.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { Watch } from './watch.mjs';
import { WebUI } from './webui.mjs';

const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];
// Tall enough for the side bar's queue to show five pictures.
const WINDOW = { width: 1280, height: 1350 };

export class Chrome {
  #browser;
  #visitors = [];

  /** Starts a browser that reaches the server at `url` and nothing else: what the page asks of others fails at once. */
  static async start({ url, executable, shots }) {
    const chrome = new Chrome();
    const { hostname } = new URL(url);
    chrome.url = url;
    chrome.shots = shots;
    chrome.watch = new Watch(url);
    mkdirSync(shots, { recursive: true });
    chrome.#browser = await chromium.launch({
      executablePath: executable,
      args: [...FLAGS, `--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE ${hostname}`],
    });
    return chrome;
  }

  /** A new visitor, who has opened the web UI. */
  async visit() {
    const context = await this.#browser.newContext({ viewport: WINDOW });
    await context.addInitScript(look);
    this.#visitors.push(context);
    const page = await context.newPage();
    this.watch.page(page);
    const ui = new WebUI(page, this.watch);
    await ui.open(this.url);
    return ui;
  }

  /** Takes a picture of every open page, for people to look at. */
  async shoot(name) {
    const pages = this.#visitors.flatMap((context) => context.pages());
    for (const [n, page] of pages.entries()) {
      const file = path.join(this.shots, `${name}${n ? `-${n + 1}` : ''}.png`);
      await page.screenshot({ path: file, timeout: 15_000 }).catch(() => {}); // a page that hangs has no picture
    }
  }

  /** Sends the visitors away. */
  async leave() {
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

/** Runs in the page: what an image looks like, its size and the colour of its middle. */
function look() {
  window.comfyhubLook = (image) => {
    const canvas = document.createElement('canvas');
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const [r, g, b] = context.getImageData(canvas.width >> 1, canvas.height >> 1, 1, 1).data;
    return { width: canvas.width, height: canvas.height, color: (r << 16) | (g << 8) | b };
  };
}
