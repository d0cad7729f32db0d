// Pictures that prove which prompt made them: one flat colour and a known size, so that a mixed-up file is noticed at once.
import { library, must } from './case.mjs';

const { PNG } = library('pngjs');

/** ComfyUI computes in floats and truncates, and resampling rounds: colours come back a little off. */
const TOLERANCE = 2;

/** A colour that no two prompts of a run are likely to share, as 0xRRGGBB. */
export const randomColor = () => Math.floor(Math.random() * 0xffffff);

/** Colours that tell n prompts apart: hues far from each other, starting at a random one. */
export function distinctColors(n) {
  const start = Math.random();
  return Array.from({ length: n }, (_, i) => hue((start + i / n) % 1));
}

/** A picture size that differs from run to run. */
export const randomSize = () => ({ width: 64 + 8 * Math.floor(Math.random() * 16), height: 64 + 8 * Math.floor(Math.random() * 16) });

function hue(h) {
  const channel = (n) => {
    const k = (n + h * 6) % 6;
    return Math.round(30 + 200 * (1 - Math.max(0, Math.min(k, 4 - k, 1))));
  };
  return (channel(5) << 16) | (channel(3) << 8) | channel(1);
}

/** PNG bytes of one flat colour. */
export function flatPng({ width, height, color }) {
  const png = new PNG({ width, height });
  for (let i = 0; i < width * height; i++) {
    png.data.writeUInt32BE(((color << 8) | 0xff) >>> 0, i * 4);
  }
  return PNG.sync.write(png);
}

/** PNG bytes of noise, which does not compress: about 3 bytes a pixel. */
export function noisePng(width, height) {
  const png = new PNG({ width, height, colorType: 2, inputHasAlpha: true });
  let state = (Math.random() * 0xffffffff) >>> 0;
  for (let i = 0; i < png.data.length; i += 4) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    png.data.writeUInt32BE((state | 0xff) >>> 0, i);
    png.data[i + 2] = Math.imul(state, 2654435761) >>> 24;
  }
  return PNG.sync.write(png, { colorType: 2, deflateLevel: 1 });
}

/** Decodes PNG bytes, and fails unless they are a whole picture. */
export function decode(bytes) {
  const buffer = Buffer.from(bytes);
  must(buffer.length > 8 && buffer.readUInt32BE(0) === 0x89504e47, `no PNG: ${buffer.length} bytes, ${buffer.subarray(0, 60).toString('latin1')}`);
  return PNG.sync.read(buffer);
}

/** Fails unless the bytes are a picture of this size, all of this colour. */
export function expectPicture(bytes, { width, height, color }, what = 'picture') {
  const png = decode(bytes);
  must(png.width === width && png.height === height, `${what}: ${png.width}x${png.height}, want ${width}x${height}`);
  for (let i = 0; i < png.data.length; i += 4) {
    const got = png.data.readUIntBE(i, 3);
    must(near(got, color), `${what}: pixel ${i / 4} is ${hex(got)}, want ${hex(color)}`);
  }
}

/** Fails unless two pictures have the same pixels. */
export function expectSamePixels(got, want, what = 'picture') {
  const a = decode(got);
  const b = decode(want);
  must(a.width === b.width && a.height === b.height, `${what}: ${a.width}x${a.height}, want ${b.width}x${b.height}`);
  must(a.data.equals(b.data), `${what}: other pixels than were sent`);
}

const near = (a, b) => [16, 8, 0].every((shift) => Math.abs(((a >> shift) & 255) - ((b >> shift) & 255)) <= TOLERANCE);
const hex = (color) => `#${color.toString(16).padStart(6, '0')}`;
