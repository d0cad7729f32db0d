// What a run comes to: one verdict a case, a table, and the line that machines read.

const WORDS = { pass: 'ok', fail: 'FAIL', skip: 'skip', none: '-' };

/**
 * The verdict on a case from its results on the servers. With two servers the hub is judged, by what the
 * reference can: a case that the reference fails is the client's or ComfyUI's fault, unless it is one that a hub
 * must do better.
 */
export function verdict({ reference, hub, hubOnly }) {
  if (!hub) return reference.status;
  if (!reference || hubOnly) return hub.status;
  if (hub.status === 'pass') return 'pass';
  if (reference.status === 'pass') return 'fail'; // a case skipped for a class that the reference has is a failure too
  return 'skip';
}

/** The table, the details of what did not pass, and the closing line. Gives the exit code. */
export function report(rows, servers, print) {
  const columns = ['check', ...servers];
  const lines = rows.map((row) => [row.name, ...servers.map((server) => WORDS[row[server]?.status ?? 'none'])]);
  const widths = columns.map((_, i) => Math.max(...[columns, ...lines].map((line) => line[i].length)));
  const draw = (cells) => print(cells.map((cell, i) => cell.padEnd(widths[i])).join(' | ').trimEnd());
  print('');
  draw(columns);
  draw(widths.map((width) => '-'.repeat(width)));
  lines.forEach(draw);

  const count = { pass: 0, fail: 0, skip: 0 };
  for (const row of rows) count[verdict(row)]++;

  for (const [title, want] of [['Failed', 'fail'], ['Skipped', 'skip']]) {
    const these = rows.filter((row) => verdict(row) === want);
    if (!these.length) continue;
    print(`\n${title}:`);
    for (const row of these) {
      for (const server of servers) {
        if (row[server] && row[server].status !== 'pass') print(`  ${row.name} (${server}): ${indent(row[server].detail)}`);
      }
    }
  }
  print('');
  print(`${count.pass} passed, ${count.fail} failed, ${count.skip} skipped`);
  return count.fail ? 1 : 0;
}

const indent = (text) => text.trim().replaceAll('\n', '\n      ');
