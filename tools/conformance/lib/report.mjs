// The result of a run: one verdict per case, a table, and the line that machines read.

const WORDS = { pass: 'ok', fail: 'FAIL', skip: 'skip' };

/**
 * The verdict on a case in one column. A hub is judged by what a plain ComfyUI can do, one of the same version if there
 * is one: if the plain one fails a case, the client or ComfyUI is at fault, unless a hub must do that case better.
 * A plain ComfyUI beside a hub is the measure and is not judged. A strict case is judged by its own result everywhere.
 * Undefined if there is nothing to judge.
 */
export function verdict({ results, hubOnly, strict }, column, columns) {
  const result = results[column.name];
  if (!result) return undefined;
  if (result.broken) return 'fail'; // not a server's fault: the case itself cannot run
  if (strict) return result.status;
  if (!column.hub) return columns.some(({ hub }) => hub) ? undefined : result.status;
  if (hubOnly || result.status === 'pass') return result.status;
  const plain = measure(results, column, columns);
  if (!plain) return result.status;
  return plain.status === 'pass' ? 'fail' : 'skip'; // a case skipped for a class that the plain one has is a failure too
}

/** The plain ComfyUI's result that a hub's result is compared with. */
function measure(results, { version }, columns) {
  const plain = columns.filter(({ hub, name }) => !hub && results[name]);
  return results[(plain.find((column) => column.version === version) ?? plain[0])?.name];
}

/** A case has failed if it failed in any column, otherwise passed if it passed in any, otherwise it is skipped. */
function overall(row, columns) {
  const verdicts = columns.map((column) => verdict(row, column, columns)).filter(Boolean);
  if (verdicts.includes('fail')) return 'fail';
  return verdicts.includes('pass') ? 'pass' : 'skip';
}

/** Prints the table, the details of what did not pass, and the closing line. Returns the exit code. */
export function report(rows, columns, print) {
  const head = ['check', ...columns.map(({ name }) => name)];
  const lines = rows.map((row) => [row.name, ...columns.map(({ name }) => WORDS[row.results[name]?.status] ?? '-')]);
  const widths = head.map((_, i) => Math.max(...[head, ...lines].map((line) => line[i].length)));
  const draw = (cells) => print(cells.map((cell, i) => cell.padEnd(widths[i])).join(' | ').trimEnd());
  print('');
  draw(head);
  draw(widths.map((width) => '-'.repeat(width)));
  lines.forEach(draw);

  for (const [title, want] of [['Failed', 'fail'], ['Skipped', 'skip']]) {
    const these = rows.filter((row) => columns.some((column) => verdict(row, column, columns) === want));
    if (!these.length) continue;
    print(`\n${title}:`);
    for (const row of these) {
      if (!Object.keys(row.results).length) print(`  ${row.name}: a stock ComfyUI cannot: ${row.hubOnly}`);
      for (const column of columns) {
        const result = row.results[column.name];
        const verdicts = [want, undefined]; // a hub's failure, and beside it what the plain one said
        if (result && result.status !== 'pass' && verdicts.includes(verdict(row, column, columns))) {
          print(`  ${row.name} (${column.name}): ${indent(result.detail)}`);
        }
      }
    }
  }
  const again = rows.flatMap(({ name, results }) =>
    columns.filter((column) => results[column.name]?.before).map((column) => `  ${name} (${column.name}): ${indent(results[column.name].before)}`));
  if (again.length) {
    print('\nPassed in the second turn only, the first said:');
    again.forEach((line) => print(line));
  }
  const count = { pass: 0, fail: 0, skip: 0 };
  for (const row of rows) count[overall(row, columns)]++;
  print('');
  print(`${count.pass} passed, ${count.fail} failed, ${count.skip} skipped`);
  return count.fail ? 1 : 0;
}

const indent = (text) => text.trim().replaceAll('\n', '\n      ');
