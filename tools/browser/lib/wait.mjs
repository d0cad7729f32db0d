// Waiting for what a page shows.
import { setTimeout as pause } from 'node:timers/promises';

/** How long a page may take to show what it must, in ms. It is generous, for a busy machine without a GPU. */
export const PATIENCE = 120_000;

/** Asks until the answer is truthy, and returns it. In the failure, `what` says what did not come. */
export async function until(what, holds, patience = PATIENCE) {
  const deadline = Date.now() + patience;
  for (;;) {
    const answer = await holds();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`not within ${patience / 1000} s: ${what}`);
    await pause(100);
  }
}
