// ComfyUI's web UI in one tab, used as a person does: its buttons, its panels, what it shows. panel.mjs knows where
// versions differ.
import { panelOf } from './panel.mjs';
import { until } from './wait.mjs';

export const READY = 180_000; // ms; a visit loads 20 MB of scripts
const GREETING = 30_000; // ms; after that none comes
const LINKS = '/api/settings/Comfy.LinkRenderMode';
const DIALOG = '.p-dialog-mask, [role=dialog]';
const CROSS = 'button[aria-label*=close i], .p-dialog-close-button, button:has(.pi-times), button:has([class*="lucide--x"])';
const ALERTS = '.p-toast-message .p-toast-close-button';
const GREETED = '/api/settings/Comfy.TutorialCompleted'; // what a first visit sets when it greets
const FILE = '#comfy-file-input'; // what "Open" in the menu clicks

/** Whether a request posts to a route. The server may stand below a path. */
const posts = (request, route) => request.method() === 'POST' && new URL(request.url()).pathname.endsWith(route);

export class WebUI {
  #greeting = false;

  constructor(page, watch) {
    this.page = page;
    this.watch = watch;
    page.on('request', (request) => {
      if (posts(request, GREETED)) this.#greeting = true;
    });
  }

  /** Opens the page and waits until it is drawn and its socket is open. */
  async open(url) {
    const begin = Date.now();
    await this.page.goto(`${url}/`);
    await this.#ready();
    this.panel = await panelOf(this.page);
    // How long a first visit takes, in seconds. It tells the steps how slow this machine is right now.
    this.slowness = (Date.now() - begin) / 1000;
  }

  /** Reloads the tab, as F5 does. */
  async reload() {
    this.watch.leaving(this.page);
    await this.page.reload();
    await this.#ready();
  }

  async #ready() {
    await this.page.waitForFunction(() => window.app?.extensionManager && window.app.canvas && window.app.api?.socket?.readyState === 1
      && Object.keys(window.LiteGraph?.registered_node_types ?? {}).length > 10, null, { timeout: READY });
    await this.#greeted();
    await this.closeDialogs();
  }

  /** Waits until a first visit has been greeted with a dialog of templates, which covers everything else. */
  async #greeted() {
    const decided = (dialog) => window.app.extensionManager.setting.get('Comfy.TutorialCompleted') || document.querySelector(dialog);
    await this.page.waitForFunction(decided, DIALOG, { timeout: GREETING }).catch(() => {});
    await this.page.waitForTimeout(500);
    if (this.#greeting) await this.page.locator(DIALOG).first().waitFor({ timeout: GREETING }).catch(() => {});
    this.#greeting = false;
  }

  async closeDialogs() {
    const dialog = this.page.locator(DIALOG).first();
    for (let n = 0; n < 5 && await dialog.isVisible(); n++) {
      await this.page.keyboard.press('Escape');
      await this.page.waitForTimeout(300);
      // The dialog of 1.32 gets no key while the focus is elsewhere, and an alert covers its cross.
      if (n > 0 && await dialog.isVisible()) await this.#cross(dialog);
    }
  }

  /** Closes the alerts that cover a dialog's cross, then clicks the cross. */
  async #cross(dialog) {
    await this.#closeAlerts();
    await dialog.locator(CROSS).first().click({ timeout: 2_000 }).catch(() => {}); // it may have closed by itself
    await this.page.waitForTimeout(300);
  }

  /** Closes the alerts, which cover Run: an older UI warns that it is older than the server. */
  async #closeAlerts() {
    for (const cross of await this.page.locator(ALERTS).all()) await cross.click({ timeout: 2_000 }).catch(() => {});
  }

  /** Opens a workflow's file. */
  async load(name, workflow) {
    const buffer = Buffer.from(JSON.stringify(workflow));
    await this.page.locator(FILE).first().setInputFiles({ name: `${name}.json`, mimeType: 'application/json', buffer });
    const types = workflow.nodes.map(({ type }) => type).join();
    await until('the workflow is on the canvas', async () => await this.opened() === name && (await this.nodes()).join() === types);
  }

  /** The name of the workflow in the front tab. */
  opened() {
    return this.page.evaluate(() => window.app.extensionManager.workflow?.activeWorkflow?.filename);
  }

  /** The types of the nodes on the canvas, by id. */
  nodes() {
    return this.page.evaluate(() => window.app.graph.nodes.toSorted((a, b) => a.id - b.id).map(({ type }) => type));
  }

  /** Gives each empty picture another colour, so that no cache answers, and clicks Run. Resolves to the prompt's id. */
  async run(...colors) {
    await this.page.evaluate((values) => {
      const nodes = window.app.graph.nodes.filter(({ type }) => type === 'EmptyImage').sort((a, b) => a.id - b.id);
      values.forEach((value, n) => {
        nodes[n].widgets.find(({ name }) => name === 'color').value = value;
      });
    }, colors);
    return this.click();
  }

  /** Clicks Run. Resolves to the prompt's id. */
  async click() {
    await this.#closeAlerts();
    const answer = this.page.waitForResponse((response) => posts(response.request(), '/api/prompt'));
    await this.page.locator('button[data-testid=queue-button], [data-testid=queue-button] button').first().click();
    const response = await answer;
    if (!response.ok()) throw new Error(`Run was answered with ${response.status()}: ${await response.text()}`);
    return (await response.json()).prompt_id;
  }

  /** Clicks the cross beside Run, which interrupts what runs. */
  async interrupt() {
    await this.page.getByLabel('Cancel current run').click();
  }

  /** What the page shows, in words. */
  async seen() {
    const [title, opened, active, tasks] = await Promise.all([this.title(), this.opened(), this.panel?.active(), this.panel?.tasks()]);
    return `title ${title}; workflow ${opened}; ${active} active; panel ${JSON.stringify(tasks)}`;
  }

  /** The tab's title: while a prompt runs, its progress and the node that runs. */
  title() {
    return this.page.title();
  }

  /** Notes every title from now on. The function that it returns stops that and returns the titles. */
  async titles() {
    await this.page.evaluate(() => {
      const seen = [document.title];
      const observer = new MutationObserver(() => seen.push(document.title));
      observer.observe(document.head, { subtree: true, childList: true, characterData: true });
      window.comfyhubTitles = { seen, observer };
    });
    return () => this.page.evaluate(() => {
      window.comfyhubTitles.observer.disconnect();
      return window.comfyhubTitles.seen;
    });
  }

  /** The picture on the node that saves: its size and the colour of its middle, or null if it shows none. */
  async picture() {
    return (await this.pictures())[0];
  }

  /** The pictures on all nodes that save, as `picture` tells them, by the nodes' ids. */
  pictures() {
    return this.page.evaluate(() => window.app.graph.nodes.filter(({ type }) => type === 'SaveImage').sort((a, b) => a.id - b.id).map((node) => {
      const image = node.imgs?.[0];
      return image?.naturalWidth ? window.comfyhubLook(image) : null;
    }));
  }

  /** Notes every preview that the nodes of a type show from now on. The function that it returns says how many there were. */
  async previews(type) {
    await this.page.evaluate((wanted) => {
      const seen = new Set();
      const look = () => {
        const image = window.app.graph.nodes.find((node) => node.type === wanted)?.imgs?.[0];
        if (image?.src.startsWith('blob:') && image.naturalWidth) seen.add(image.src);
      };
      window.comfyhubPreviews = { seen, timer: setInterval(look, 20) };
    }, type);
    return () => this.page.evaluate(() => {
      clearInterval(window.comfyhubPreviews.timer);
      return window.comfyhubPreviews.seen.size;
    });
  }

  /** Uploads a picture of one colour with the button of the node that loads pictures, under a name that is new to the server. */
  async upload(name, color) {
    const data = await this.page.evaluate((value) => window.comfyhubPaint(value), color);
    const file = { name, mimeType: 'image/png', buffer: Buffer.from(data.split(',')[1], 'base64') };
    const chooser = await until('a file is asked for', async () => {
      const asked = this.page.waitForEvent('filechooser', { timeout: 10_000 }).catch(() => null);
      await this.page.mouse.click(...await this.#uploadButton());
      return asked;
    });
    await chooser.setFiles(file);
    await until('the node shows the picture', () => this.page.evaluate((wanted) => {
      const node = window.app.graph.nodes.find(({ type }) => type === 'LoadImage');
      const image = node.imgs?.[0];
      // Until then it shows the first picture that the server offers, if there is one.
      return node.widgets.find((widget) => widget.name === 'image').value === wanted && image?.src.includes(wanted) && image.naturalWidth > 0;
    }, name));
  }

  /** Where the button that asks for a file is. A workflow that has just been opened is still moving into view. */
  #uploadButton() {
    let last;
    return until('the node lies still', async () => {
      const place = await this.page.evaluate(() => {
        const node = window.app.graph.nodes.find(({ type }) => type === 'LoadImage');
        const button = node.widgets.find(({ type }) => type === 'button');
        return window.app.canvasPosToClientPos([node.pos[0] + node.size[0] / 2, node.pos[1] + button.last_y + 10]);
      });
      const still = place.every(Number.isFinite) && place.join() === last?.join();
      last = [...place];
      return still && last;
    });
  }

  /** Whether the links between the nodes are drawn. */
  links() {
    return this.page.evaluate(() => window.app.canvas.links_render_mode !== window.LiteGraph.HIDDEN_LINK);
  }

  /** Clicks the button that hides the links, or shows them again; this is a setting. */
  async toggleLinks() {
    const kept = this.page.waitForResponse((response) => posts(response.request(), LINKS));
    await this.page.getByTestId('toggle-link-visibility-button').click();
    const response = await kept;
    if (!response.ok()) throw new Error(`the setting was answered with ${response.status()}`);
  }

  /** Saves the workflow with Ctrl+S, under a name that a first save asks for. */
  async save(name) {
    await this.page.locator('canvas').first().click({ position: { x: 400, y: 500 }, force: true });
    await this.page.keyboard.press('Control+s');
    const input = this.page.locator('.p-dialog input[type=text], [role=dialog] input').first();
    await input.fill(name);
    await input.press('Enter');
    await input.waitFor({ state: 'hidden' });
  }

  /** Opens a saved workflow from the side bar. */
  async openSaved(name) {
    await this.page.locator('.workflows-tab-button').first().click();
    await this.page.getByText(name, { exact: false }).first().click();
  }
}
