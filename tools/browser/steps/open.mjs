// A first visit: the page is drawn, its socket opens, all of the server's node classes are there.
import assert from 'node:assert/strict';
import { until } from '../lib/wait.mjs';

export const name = 'open';

export async function run({ chrome, url }) {
  const ui = await chrome.visit();
  const classes = Object.keys(await (await fetch(`${url}/object_info`)).json());
  let missing = classes; // the page learns them one after another
  await until('the page knows all classes', async () => {
    const known = await ui.page.evaluate(() => Object.keys(window.LiteGraph.registered_node_types));
    missing = classes.filter((type) => !known.includes(type));
    return missing.length === 0;
  }).catch((error) => assert.deepEqual(missing, [], error.message));
  return `${classes.length} classes`;
}
