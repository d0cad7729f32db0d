// Graphs that need no model and no GPU. Each makes one flat picture in a colour that defeats every cache.
import { randomColor, randomSize } from './picture.mjs';

/** The id of the output node in every graph of this file, so that clients can name it. */
export const SAVE = '9';

/**
 * EmptyImage -> ImageScale -> SaveImage, and what the saved picture must look like.
 * `prefix` names the files; `work` is a list of nodes from `work()` that go in between and take time.
 */
export function paint({ color = randomColor(), size = randomSize(), prefix = 'conformance', work = [], output = 'SaveImage' } = {}) {
  const side = work.some((node) => node.class_type === 'ImageBlur') ? 512 : 32;
  const prompt = {
    1: { class_type: 'EmptyImage', inputs: { width: side, height: side, batch_size: 1, color } },
  };
  const last = chain(prompt, '1', work);
  prompt[8] = scale(last, size);
  prompt[SAVE] = save(output, '8', prefix);
  return { prompt, color, ...size };
}

/** LoadImage -> ImageScale -> SaveImage of a picture that was uploaded. */
export function load(image, { size = randomSize(), prefix = 'conformance', work = [], output = 'SaveImage' } = {}) {
  const prompt = { 1: { class_type: 'LoadImage', inputs: { image } } };
  const last = chain(prompt, '1', work);
  prompt[8] = scale(last, size);
  prompt[SAVE] = save(output, '8', prefix);
  return { prompt, ...size };
}

/**
 * Nodes that keep an instance busy for about `seconds` and can be interrupted in between: the simulator's
 * SimulatedWork if the server has it, otherwise a row of wide blurs, which leave a flat colour as it is.
 */
export function work(classes, seconds) {
  if (classes.has('SimulatedWork')) {
    const nonce = Math.floor(Math.random() * 2 ** 31);
    return [{ class_type: 'SimulatedWork', inputs: { seconds, steps: Math.max(1, Math.ceil(seconds * 4)), fail: 'none', nonce } }];
  }
  if (classes.has('ImageBlur')) {
    const blurs = Math.ceil(seconds / 0.7); // a 512x512 blur on one slow core
    return Array.from({ length: blurs }, () => ({ class_type: 'ImageBlur', inputs: { blur_radius: 31, sigma: 10 } }));
  }
  return null;
}

function chain(prompt, from, nodes) {
  let last = from;
  nodes.forEach((node, i) => {
    const id = String(100 + i);
    prompt[id] = { class_type: node.class_type, inputs: { image: [last, 0], ...node.inputs } };
    last = id;
  });
  return last;
}

const scale = (from, { width, height }) => ({
  class_type: 'ImageScale',
  inputs: { image: [from, 0], upscale_method: 'nearest-exact', width, height, crop: 'disabled' },
});

const save = (output, from, prefix) => ({
  class_type: output,
  inputs: output === 'SaveImage' ? { images: [from, 0], filename_prefix: prefix } : { images: [from, 0] },
});
