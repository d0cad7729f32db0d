import { h } from './dom.js';

// A List shows rows of one height, and has only those in the document that are seen: with
// ten thousand rows the page stays as light as with ten. Arrows move between rows, and the
// keys that `keys` names call their functions.
export class List {
  // make returns a new row's element and the function that fills it with an item.
  constructor({ label, height, make, open, keys = {}, key, columns }) {
    Object.assign(this, { height, make, open, keys, key });
    this.items = [];
    this.rows = [];
    this.current = 0;
    this.space = h('div.space', { role: 'presentation' });
    this.head = columns && h('div.row.head', { role: 'row' }, columns.map((name) => h('div', { role: 'columnheader' }, name)));
    this.element = h('div.list', { role: 'grid', 'aria-label': label, tabindex: '-1' }, this.head, this.space);
    this.element.addEventListener('scroll', () => this.draw(), { passive: true });
    this.element.addEventListener('keydown', (event) => this.press(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  rowHeight() { return typeof this.height === 'function' ? this.height() : this.height; }

  show(items) {
    // The row that has the focus keeps it wherever its item goes.
    const focused = this.rows.find(({ element }) => element.contains(document.activeElement));
    const kept = focused && this.items[focused.index] && this.key(this.items[focused.index]);
    this.items = items;
    if (kept !== undefined) {
      const at = items.findIndex((item) => this.key(item) === kept);
      if (at >= 0) this.current = at;
    }
    this.current = Math.max(0, Math.min(this.current, items.length - 1));
    this.draw(kept !== undefined && document.activeElement === focused?.element);
  }

  draw(refocus) {
    const height = this.rowHeight();
    const headHeight = this.head?.offsetHeight ?? 0;
    this.space.style.height = `${this.items.length * height}px`;
    this.element.setAttribute('aria-rowcount', this.items.length + (this.head ? 1 : 0));
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - 3);
    const count = Math.min(this.items.length - first, Math.ceil((this.element.clientHeight - headHeight) / height) + 7);
    while (this.rows.length < count) {
      const row = this.make();
      row.element.setAttribute('role', 'row');
      row.element.addEventListener('click', (event) => {
        if (event.target.closest('button, a')) return;
        this.current = row.index;
        this.open?.(this.items[row.index], row.element);
      });
      row.element.addEventListener('focus', () => { this.current = row.index; });
      this.rows.push(row);
      this.space.append(row.element);
    }
    while (this.rows.length > Math.max(count, 0)) this.rows.pop().element.remove();
    this.rows.forEach((row, n) => {
      row.index = first + n;
      row.element.style.transform = `translateY(${row.index * height}px)`;
      row.element.style.height = `${height}px`;
      row.element.setAttribute('aria-rowindex', row.index + (this.head ? 2 : 1));
      row.element.tabIndex = row.index === this.current ? 0 : -1;
      row.fill(this.items[row.index], row.index);
      if (refocus && row.index === this.current && document.activeElement !== row.element) row.element.focus({ preventScroll: true });
    });
  }

  press(event) {
    const onRow = this.rows.some(({ element }) => element === event.target);
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
    const to = { ArrowDown: this.current + 1, ArrowUp: this.current - 1, PageDown: this.current + page, PageUp: this.current - page, Home: 0, End: this.items.length - 1 }[event.key];
    if (onRow && event.key === 'Enter' && this.items[this.current]) this.open?.(this.items[this.current], event.target);
    else if (onRow && this.keys[(event.altKey ? 'Alt+' : '') + event.key]) this.keys[(event.altKey ? 'Alt+' : '') + event.key](this.items[this.current], this.current);
    else if (to !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) this.go(to);
    else return;
    event.preventDefault();
  }

  go(to) {
    this.current = Math.max(0, Math.min(to, this.items.length - 1));
    const height = this.rowHeight();
    const top = this.current * height;
    const room = this.element.clientHeight - (this.head?.offsetHeight ?? 0);
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + height > this.element.scrollTop + room) this.element.scrollTop = top + height - room;
    this.draw();
    this.rows.find(({ index }) => index === this.current)?.element.focus({ preventScroll: true });
  }

  end() { this.observer.disconnect(); }
}
