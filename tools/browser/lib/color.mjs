// Colours of flat pictures, as 0xRRGGBB. They tell one result from another.

/** A colour that defeats every cache, never near black or white. */
export const randomColor = () => [0, 1, 2].reduce((color) => color * 256 + 32 + Math.floor(Math.random() * 192), 0);

/** Whether two colours are the same, apart from what a row of blurs loses by rounding. */
export const sameColor = (a, b) => [16, 8, 0].every((shift) => Math.abs(((a >> shift) & 255) - ((b >> shift) & 255)) <= 2);
