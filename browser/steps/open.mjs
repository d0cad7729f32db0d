// A first visit: the page is drawn, its socket opens, all of the server's node classes are there.
import assert from 'node:assert/strict';

export const name = 'open';

export async function run({ chrome, url }) {
  const ui = await chrome.visit();
  const classes = Object.keys(await (await fetch(`${url}/object_info`)).json());
  const known = await ui.page.evaluate(() => Object.keys(window.LiteGraph.registered_node_types));
  assert.deepEqual(classes.filter((type) => !known.includes(type)), [], 'classes that the page does not know');
  return `${classes.length} classes`;
}
