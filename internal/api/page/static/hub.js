import { say, t } from './words.js';

// The calls of the hub. A path is relative to /hub/, so that a proxy may serve the hub below
// a path of its own.
export async function call(method, path, body) {
  const answer = await fetch(path, {
    method, headers: body === undefined ? {} : { 'Content-Type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => { throw new Error(t('unreachable')); }); // each browser has words of its own for that
  const text = await answer.text();
  let value = null;
  try { value = JSON.parse(text); } catch { /* some errors are plain text */ }
  if (!answer.ok) {
    const error = value?.error;
    const message = (typeof error === 'string' ? error : error?.message) || text.slice(0, 200) || `HTTP ${answer.status}`;
    throw Object.assign(new Error(message), { status: answer.status });
  }
  return value;
}

// act makes a call that somebody has asked for, and says how it went.
export async function act(done, method, path, body) {
  try {
    const value = await call(method, path, body);
    say(done);
    return value;
  } catch (error) {
    say(`${t('failed')}: ${error.message}`, true);
    return null;
  }
}

const of = (job) => `jobs/${encodeURIComponent(job.id)}`;
const whose = (job) => `?tenant=${encodeURIComponent(job.tenant)}`;

export const jobs = {
  cancel: (job) => act(t('did.cancel'), 'POST', `${of(job)}/cancel${whose(job)}`),
  steer: (job, change, done) => act(done, 'PATCH', of(job) + whose(job), change),
  dismiss: (job, name) => act(t('did.dismiss'), 'POST', `v1/hints/${encodeURIComponent(job.key)}/dismiss/${name}${whose(job)}`),
  restore: (job, name) => act(t('did.restore'), 'POST', `v1/hints/${encodeURIComponent(job.key)}/restore/${name}${whose(job)}`),
  explain: (job) => call('POST', `explain${whose(job)}`, { prompt_id: job.id }),
};

export const fleet = {
  command: (verb, instance, done) => act(done, 'POST', `${verb}?instance=${encodeURIComponent(instance)}`),
  all: (verb, done) => act(done, 'POST', verb),
};
