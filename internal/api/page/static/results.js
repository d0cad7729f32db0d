import { h, show, text, trouble } from './dom.js';
import { act, call } from './hub.js';
import { store } from './store.js';
import { count, moment, say, short, t } from './words.js';

const pageSize = 48;
// maxCards bounds what is in the document: older ones are a click on "show more" away.
const maxCards = 480;

// The outputs of jobs are read by ComfyUI's own routes, which are beside /hub/.
const comfy = (path) => `../${path}`;
const fileURL = (file, preview) => comfy(`view?${new URLSearchParams({ filename: file.filename, subfolder: file.subfolder ?? '', type: file.type ?? 'output', ...(preview ? { preview: 'webp;80' } : {}) })}`);
const isPicture = (name) => /\.(png|jpe?g|webp|gif|avif|bmp)$/i.test(name);

// filesOf are the files in the outputs of a job.
function filesOf(outputs) {
  const files = [];
  const seen = new Set();
  const look = (value) => {
    if (Array.isArray(value)) value.forEach(look);
    else if (value && typeof value === 'object') {
      if (typeof value.filename === 'string' && typeof value.type === 'string') {
        const name = `${value.type}/${value.subfolder}/${value.filename}`;
        if (!seen.has(name)) files.push(value);
        seen.add(name);
      } else Object.values(value).forEach(look);
    }
  };
  look(outputs);
  return files;
}

export function create(view) {
  const grid = h('div.cards', { role: 'list', 'aria-label': t('results') });
  const empty = h('div.empty', { hidden: true }, h('h2', {}, t('no.results')), h('p', {}, t('no.results.help')));
  const more = h('button.more', { type: 'button', hidden: true, onclick: () => load(grid.children.length) }, t('more'));
  const failed = trouble();
  const scroll = h('div.scroll', { tabindex: '0', 'aria-label': t('results'), role: 'region' }, grid, more, empty, failed.element);
  view.append(scroll);
  const cards = new Map();
  let seen = store.left;
  let there = store.connected;
  let busy = false;
  let at = 0;

  async function load(offset) {
    if (busy) return;
    busy = true;
    try {
      const page = await call('GET', comfy(`api/jobs?status=completed,failed&sort_by=created_at&sort_order=desc&limit=${pageSize}&offset=${offset}`));
      const list = page.jobs ?? [];
      const fresh = list.filter(({ id }) => !cards.has(id)).map((job) => {
        const made = card(job, soon);
        cards.set(job.id, made);
        return made;
      });
      if (offset) grid.append(...fresh);
      else grid.prepend(...fresh);
      while (grid.children.length > maxCards && !offset) {
        cards.delete(grid.lastChild.dataset.id);
        grid.lastChild.remove();
      }
      show(more, Boolean(page.pagination?.has_more) && grid.children.length < maxCards);
      show(empty, grid.children.length === 0);
      failed.say(null);
    } catch (error) {
      if (grid.children.length) say(`${t('failed')}: ${error.message}`, true);
      else failed.say(error);
    } finally {
      busy = false;
    }
  }
  // soon looks again after more than one report of the fleet: a run that begins and ends
  // between two of them is in neither.
  function soon() { setTimeout(() => (busy ? soon() : load(0)), 1500); }

  load(0);
  return {
    update() {
      if (busy || Date.now() - at < 2000) return;
      const back = store.connected && !there;
      there = store.connected;
      if (store.left === seen && !back) return;
      seen = store.left;
      at = Date.now();
      load(0);
    },
    end() {},
  };
}

function card(job, soon) {
  const shown = job.preview_output;
  const failed = job.status !== 'completed';
  const picture = shown && isPicture(shown.filename)
    ? h('img', { src: fileURL(shown, true), alt: shown.filename, loading: 'lazy', decoding: 'async', onerror: (event) => event.target.replaceWith(h('span.file', {}, shown.filename)) })
    : h('span.file', {}, shown?.filename ?? t(failed ? 'error' : 'success'));
  const took = job.execution_end_time && job.execution_start_time ? short((job.execution_end_time - job.execution_start_time) / 1000) : '';
  const verb = (label, act2) => h('button.word', { type: 'button', onclick: act2 }, label);
  const whole = () => call('GET', comfy(`history/${encodeURIComponent(job.id)}`)).then((all) => {
    if (!all?.[job.id]) throw new Error(t('no.results'));
    return all[job.id];
  });
  const guarded = (f) => async () => {
    try { await f(await whole()); } catch (error) { say(`${t('failed')}: ${error.message}`, true); }
  };
  return h(failed ? 'div.card.failed' : 'div.card', { role: 'listitem', 'data-id': job.id },
    shown ? h('a.picture', { href: fileURL(shown), target: '_blank', rel: 'noopener', 'aria-label': `${t('open')} ${shown.filename}` }, picture) : h('div.picture', {}, picture),
    h('div.about', {},
      h('span.name', { title: job.id }, failed ? job.execution_error?.exception_message?.trim() || t('error') : shown?.filename ?? job.id),
      h('span.sub', {}, [moment(job.create_time), took, job.outputs_count > 1 ? count('n.files', job.outputs_count) : ''].filter(Boolean).join(' · '))),
    h('div.verbs', {},
      job.outputs_count > 0 && verb(t('download'), guarded(({ outputs }) => download(filesOf(outputs)))),
      verb(t('workflow'), guarded((entry) => {
        const workflow = entry.prompt?.[3]?.extra_pnginfo?.workflow ?? entry.prompt?.[2];
        if (!workflow) throw new Error(t('no.workflow'));
        save(new Blob([JSON.stringify(workflow, null, 2)], { type: 'application/json' }), `${job.id}.json`);
      })),
      verb(t('again'), guarded(async (entry) => {
        // A number is not taken over: it would put the job before others.
        const { client_id: client, ...extra } = entry.prompt[3] ?? {};
        await act(t('did.again'), 'POST', comfy('prompt'), { prompt: entry.prompt[2], extra_data: extra });
        soon();
      }))));
}

// download saves files one after the other: browsers drop some of many at once.
async function download(files) {
  for (const file of files) {
    const answer = await fetch(fileURL(file));
    if (!answer.ok) throw new Error(`${file.filename}: HTTP ${answer.status}`);
    save(await answer.blob(), file.filename);
    await new Promise((done) => { setTimeout(done, 200); });
  }
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
