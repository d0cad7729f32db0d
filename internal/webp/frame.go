package webp

import (
	"context"
	"slices"
)

// frame is one picture on its way to a VP8 key frame.
type frame struct {
	width, height int
	across, down  int // macroblocks
	y, u, v       *plane
	// what a decoder will have, before its loop filter
	madeY, madeU, madeV *plane

	index              int // of quantization
	smoothing          int // the level of a decoder's loop filter
	luma, dc, chroma   steps
	tokens             tokens
	modes, chromaModes []mode
	empty              []bool
	// whether blocks above and to the left are not empty: 4 of luma, 2 and 2
	// of chroma, and the first numbers of luma
	above []neighbours
	left  neighbours
}

type neighbours struct {
	y    [4]bool
	u, v [2]bool
	dc   bool
}

func newFrame(width, height, quality int) *frame {
	f := &frame{width: width, height: height, across: (width + 15) / 16, down: (height + 15) / 16, index: quantizer(quality)}
	w, h := f.across*16, f.down*16
	f.y, f.u, f.v = newPlane(w, h), newPlane(w/2, h/2), newPlane(w/2, h/2)
	f.madeY, f.madeU, f.madeV = newPlane(w, h), newPlane(w/2, h/2), newPlane(w/2, h/2)
	count := f.across * f.down
	f.modes, f.chromaModes, f.empty = make([]mode, count), make([]mode, count), make([]bool, count)
	f.above = make([]neighbours, f.across)
	d, a := dcSteps[f.index], acSteps[f.index]
	// The biases make small numbers 0, which costs little to see and saves much.
	f.smoothing = smoothing(f.index)
	f.luma = steps{dc: d, ac: a, dcBias: 96, acBias: 110}
	f.dc = steps{dc: 2 * d, ac: max(a*155/100, 8), dcBias: 96, acBias: 108}
	f.chroma = steps{dc: min(d, 132), ac: a, dcBias: 110, acBias: 115}
	return f
}

// code makes the macroblocks, row by row.
func (f *frame) code(ctx context.Context) error {
	for my := range f.down {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.left = neighbours{}
		for mx := range f.across {
			f.macroblock(mx, my)
		}
	}
	return nil
}

func (f *frame) macroblock(mx, my int) {
	n := my*f.across + mx
	c := coded{}
	f.modes[n] = f.codeLuma(&c, mx*16, my*16)
	f.chromaModes[n] = f.codeChroma(&c, mx*8, my*8)
	if f.empty[n] = c.empty(); f.empty[n] {
		f.above[mx], f.left = neighbours{}, neighbours{}
		return
	}
	f.write(&c, &f.above[mx], &f.left)
}

// coded are the quantized blocks of a macroblock.
type coded struct {
	levels [25][16]int16 // first numbers of luma, 16 of luma, 4 and 4 of chroma
	last   [25]int
}

func (c *coded) empty() bool {
	for _, last := range c.last {
		if last >= 0 {
			return false
		}
	}
	return true
}

// choose takes the prediction that leaves least.
func choose(size int, from []*edges, planes []*plane, x, y int, predicted []*[256]uint8) mode {
	best, least := modeDC, -1
	var try [256]uint8
	for _, m := range [...]mode{modeDC, modeV, modeH, modeTM} {
		sum := 0
		for i, e := range from {
			e.predict(m, &try)
			sum += planes[i].distance(x, y, size, &try)
		}
		if least < 0 || sum < least {
			best, least = m, sum
		}
	}
	for i, e := range from {
		e.predict(best, predicted[i])
	}
	return best
}

func (f *frame) codeLuma(c *coded, x, y int) mode {
	var predicted [256]uint8
	m := choose(16, []*edges{f.madeY.edges(x, y, 16)}, []*plane{f.y}, x, y, []*[256]uint8{&predicted})
	var blocks [16]block
	var first block
	for n := range blocks {
		rest := f.y.rest(x, y, 16, n%4*4, n/4*4, &predicted)
		blocks[n] = forward(&rest)
		first[n] = blocks[n][0]
	}
	first = forwardDC(&first)
	c.levels[0], c.last[0] = f.dc.quantize(&first, 0)
	first = inverseDC(&first)
	for n := range blocks {
		c.levels[1+n], c.last[1+n] = f.luma.quantize(&blocks[n], 1)
		blocks[n][0] = first[n]
		made := inverse(&blocks[n])
		f.madeY.restore(x, y, 16, n%4*4, n/4*4, &predicted, &made)
	}
	return m
}

func (f *frame) codeChroma(c *coded, x, y int) mode {
	var u, v [256]uint8
	m := choose(8, []*edges{f.madeU.edges(x, y, 8), f.madeV.edges(x, y, 8)}, []*plane{f.u, f.v}, x, y, []*[256]uint8{&u, &v})
	at := 17
	for _, p := range []struct {
		from, made *plane
		predicted  *[256]uint8
	}{{f.u, f.madeU, &u}, {f.v, f.madeV, &v}} {
		for n := range 4 {
			rest := p.from.rest(x, y, 8, n%2*4, n/2*4, p.predicted)
			b := forward(&rest)
			c.levels[at], c.last[at] = f.chroma.quantize(&b, 0)
			made := inverse(&b)
			p.made.restore(x, y, 8, n%2*4, n/2*4, p.predicted, &made)
			at++
		}
	}
	return m
}

// write puts the blocks of a macroblock among the tokens.
func (f *frame) write(c *coded, above, left *neighbours) {
	add := func(kind, first, n int, above, left *bool) {
		context := 0
		if *above {
			context++
		}
		if *left {
			context++
		}
		full := f.tokens.add(kind, context, first, &c.levels[n], c.last[n])
		*above, *left = full, full
	}
	add(kindDC, 0, 0, &above.dc, &left.dc)
	for n := range 16 {
		add(kindLuma, 1, 1+n, &above.y[n%4], &left.y[n/4])
	}
	for n := range 4 {
		add(kindChroma, 0, 17+n, &above.u[n%2], &left.u[n/2])
	}
	for n := range 4 {
		add(kindChroma, 0, 21+n, &above.v[n%2], &left.v[n/2])
	}
}

// bytes is the frame as section 9 of RFC 6386 has it, in pieces.
func (f *frame) bytes() [][]byte {
	second := f.tokens.finish()
	probs, changed := &f.tokens.probs, &f.tokens.changed
	b := newBooleans()
	b.number(0, 2) // color space; pixels need clamping
	b.number(0, 1) // no segments
	b.number(0, 1) // the normal loop filter
	b.number(uint32(f.smoothing), 6)
	b.number(0, 3) // sharpness
	b.number(0, 1) // no adjustment of it
	b.number(0, 2) // one partition of tokens
	b.number(uint32(f.index), 7)
	b.number(0, 5) // the same index for all kinds
	b.number(0, 1) // the probabilities are of this frame alone
	for n := range probs {
		b.put(changed[n], updateProbs[n])
		if changed[n] {
			b.number(uint32(probs[n]), 8)
		}
	}
	empty := 0
	for _, e := range f.empty {
		if e {
			empty++
		}
	}
	some := uint8(min(max(256*(len(f.empty)-empty)/len(f.empty), 1), 255))
	b.number(1, 1) // empty macroblocks are marked
	b.number(uint32(some), 8)
	for n := range f.modes {
		b.put(f.empty[n], some)
		writeMode(b, f.modes[n])
		writeChromaMode(b, f.chromaModes[n])
	}
	first := b.finish()
	size := 0
	for _, piece := range first {
		size += len(piece)
	}
	const shown = 1 << 4
	tag := uint32(size)<<5 | shown
	head := []byte{
		byte(tag), byte(tag >> 8), byte(tag >> 16), 0x9d, 0x01, 0x2a,
		byte(f.width), byte(f.width >> 8), byte(f.height), byte(f.height >> 8),
	}
	return slices.Concat([][]byte{head}, first, second)
}

// smoothing is how much a decoder smooths the edges of blocks: as much as the
// steps of quantization make it necessary, in libwebp's measure.
func smoothing(index int) int {
	level := int(acSteps[index]>>2) * 300 / 256
	if level < 2 {
		return 0
	}
	return min(level, 63)
}

func writeMode(b *booleans, m mode) {
	b.put(true, 145) // not block by block
	b.put(m == modeH || m == modeTM, 156)
	if m == modeH || m == modeTM {
		b.put(m == modeTM, 128)
	} else {
		b.put(m == modeV, 163)
	}
}

func writeChromaMode(b *booleans, m mode) {
	b.put(m != modeDC, 142)
	if m == modeDC {
		return
	}
	b.put(m != modeV, 114)
	if m != modeV {
		b.put(m == modeTM, 183)
	}
}
