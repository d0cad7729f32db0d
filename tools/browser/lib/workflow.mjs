// Workflows as the web UI saves them: nodes, links and where they lie on the canvas. None needs a model or a GPU.
import { randomColor } from './color.mjs';

/** The size of the picture that is saved, in pixels. */
export const WIDTH = 96;
export const HEIGHT = 64;

/** A file name that is new to the server. */
export const fresh = (word) => `${word}-${Math.random().toString(36).slice(2, 8)}`;

/**
 * EmptyImage -> work -> ImageScale -> SaveImage, `WIDTH` by `HEIGHT`, in so many `branches`. The work lasts about `seconds`:
 * the simulator's SimulatedWork if the server has it, otherwise a row of wide blurs, about one a second on a busy machine, which
 * leave a flat colour as it is.
 */
export function paint({ branches = 1, seconds, simulated, prefix = 'browser', color = randomColor() }) {
  const graph = new Graph();
  const side = simulated || !seconds ? 64 : 256;
  for (let n = 0; n < branches; n++) {
    let last = graph.add('EmptyImage', [side, side, 1, color]);
    for (const [type, values] of work(seconds, simulated)) last = graph.add(type, values, last);
    last = graph.add('ImageScale', ['nearest-exact', WIDTH, HEIGHT, 'disabled'], last);
    graph.add('SaveImage', [prefix], last);
  }
  return graph.saved();
}

/** LoadImage -> ImageScale -> SaveImage. */
export function load({ prefix = 'browser' } = {}) {
  const graph = new Graph();
  const loaded = graph.add('LoadImage', ['', 'image']);
  const scaled = graph.add('ImageScale', ['nearest-exact', WIDTH, HEIGHT, 'disabled'], loaded);
  graph.add('SaveImage', [prefix], scaled);
  return graph.saved();
}

function work(seconds, simulated) {
  if (!seconds) return [];
  if (simulated) return [['SimulatedWork', [seconds, Math.ceil(seconds * 4), 'none', 0]]];
  return Array.from({ length: seconds }, () => ['ImageBlur', [31, 10]]);
}

/** A row of nodes, each of which passes one picture on to the next. */
class Graph {
  #nodes = [];
  #links = [];

  add(type, values, from) {
    const id = this.#nodes.length + 1;
    const node = {
      id,
      type,
      pos: [40 + 230 * ((id - 1) % 5), 80 + 190 * Math.floor((id - 1) / 5)],
      size: [210, 130],
      flags: {},
      order: id - 1,
      mode: 0,
      inputs: [],
      outputs: type === 'SaveImage' ? [] : [{ name: 'IMAGE', type: 'IMAGE', links: [] }],
      properties: { 'Node name for S&R': type },
      widgets_values: values,
    };
    if (from) {
      const link = this.#links.length + 1;
      from.outputs[0].links.push(link);
      node.inputs.push({ name: type === 'SaveImage' ? 'images' : 'image', type: 'IMAGE', link });
      this.#links.push([link, from.id, 0, id, 0, 'IMAGE']);
    }
    this.#nodes.push(node);
    return node;
  }

  saved() {
    return {
      last_node_id: this.#nodes.length,
      last_link_id: this.#links.length,
      nodes: this.#nodes,
      links: this.#links,
      groups: [],
      config: {},
      extra: {},
      version: 0.4,
    };
  }
}
