// The panel that lists what waits, runs and has run. It has two forms: the side bar's Queue (up to about web UI 1.33), and
// the job list under the Run button (later; at first without test ids). In both, tasks() returns the jobs from newest to
// oldest, each as {id, state, picture}; state is pending, running, done or ended (failed or cancelled).

/** Opens and returns the panel of the web UI that this page has loaded. */
export async function panelOf(page) {
  const overlay = page.locator('[data-testid=queue-overlay-toggle]');
  const panel = await overlay.count() ? new JobList(page, overlay) : new SideBar(page);
  await panel.open();
  return panel;
}

class SideBar {
  constructor(page) {
    this.page = page;
    this.items = page.locator('.task-item');
  }

  async open() {
    if (await this.page.locator('.queue-tab-button.side-bar-button-selected').count()) return;
    await this.page.locator('.queue-tab-button').click();
  }

  tasks() {
    return this.items.evaluateAll((items) => items.map((item) => {
      const text = item.innerText;
      const image = item.querySelector('img');
      const state = /Pending/.test(text) ? 'pending' : /Running/.test(text) ? 'running' : item.querySelector('.p-tag-success') ? 'done' : 'ended';
      // A running job shows its preview, if it has one.
      return { state, picture: state === 'done' && image?.naturalWidth ? window.comfyhubLook(image) : null };
    }));
  }

  /** How many jobs wait or run, according to the badge. */
  async active() {
    const badges = await this.page.locator('.queue-tab-button .p-badge').allInnerTexts();
    return Number(badges[0] ?? 0);
  }

  async cancelPending() {
    await this.items.filter({ hasText: 'Pending' }).first().click({ button: 'right' });
    await this.page.locator('.p-contextmenu').getByText('Delete').click();
  }
}

class JobList {
  constructor(page, toggle) {
    this.page = page;
    this.toggle = toggle;
    this.items = page.locator('[data-job-id], .border-secondary-background.bg-secondary-background.p-1');
  }

  async open() {
    if (await this.page.locator('[data-testid=job-assets-list]').or(this.page.getByText('Job Queue', { exact: true })).count()) return;
    await this.toggle.click();
  }

  async tasks() {
    await this.open(); // the one of 1.40 closes by itself while a page settles
    return this.items.evaluateAll((items) => items.map((item) => {
      const text = item.innerText;
      const image = item.querySelector('img');
      // A running job shows its preview here too.
      const state = /queue/i.test(text) ? 'pending' : /Total:|^Running/m.test(text) ? 'running' : image ? 'done' : 'ended';
      const picture = state === 'done' && image.naturalWidth ? window.comfyhubLook(image) : null;
      return { id: item.dataset.jobId, state, picture };
    }));
  }

  async active() {
    return parseInt(await this.toggle.innerText(), 10) || 0;
  }

  async cancelPending() {
    const item = this.items.filter({ hasText: /queue/i }).first();
    await item.hover();
    await item.getByLabel('Cancel').click();
  }
}
