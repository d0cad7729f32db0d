package webp

// plane is one channel, in whole macroblocks.
type plane struct {
	pix           []uint8
	width, height int
}

func newPlane(width, height int) *plane {
	return &plane{pix: make([]uint8, width*height), width: width, height: height}
}

// mode is how a macroblock is predicted.
type mode uint8

const (
	modeDC mode = iota // the mean of its edges
	modeV              // the row above
	modeH              // the column to the left
	modeTM             // both, along the gradient
)

// edges are the pixels around a macroblock of size by size, as a decoder has
// them; beyond the picture they are fixed.
type edges struct {
	size              int
	above, left       [16]uint8
	corner            uint8
	hasAbove, hasLeft bool
}

func (p *plane) edges(x, y, size int) *edges {
	e := &edges{size: size, corner: 127, hasAbove: y > 0, hasLeft: x > 0}
	for n := range size {
		e.above[n], e.left[n] = 127, 129
		if y > 0 {
			e.above[n] = p.pix[(y-1)*p.width+x+n]
		}
		if x > 0 {
			e.left[n] = p.pix[(y+n)*p.width+x-1]
		}
	}
	switch {
	case y > 0 && x > 0:
		e.corner = p.pix[(y-1)*p.width+x-1]
	case y > 0:
		e.corner = 129
	}
	return e
}

// predict fills a macroblock, row by row.
func (e *edges) predict(m mode, out *[256]uint8) {
	switch m {
	case modeDC:
		mean := e.mean()
		for n := range e.size * e.size {
			out[n] = mean
		}
	case modeV:
		for y := range e.size {
			copy(out[y*e.size:], e.above[:e.size])
		}
	case modeH:
		for y := range e.size {
			for x := range e.size {
				out[y*e.size+x] = e.left[y]
			}
		}
	case modeTM:
		for y := range e.size {
			for x := range e.size {
				out[y*e.size+x] = clip(int32(e.left[y]) + int32(e.above[x]) - int32(e.corner))
			}
		}
	}
}

func (e *edges) mean() uint8 {
	sum, count := 0, 0
	if e.hasAbove {
		for _, v := range e.above[:e.size] {
			sum += int(v)
		}
		count += e.size
	}
	if e.hasLeft {
		for _, v := range e.left[:e.size] {
			sum += int(v)
		}
		count += e.size
	}
	if count == 0 {
		return 128
	}
	return uint8((sum + count/2) / count)
}

func clip(v int32) uint8 { return uint8(min(max(v, 0), 255)) }

// distance is how far a prediction is from the picture.
func (p *plane) distance(x, y, size int, predicted *[256]uint8) int {
	sum := 0
	for row := range size {
		line := p.pix[(y+row)*p.width+x:][:size]
		for n, v := range line {
			d := int(v) - int(predicted[row*size+n])
			sum += d * d
		}
	}
	return sum
}

// rest is what a prediction leaves of a block of 4 by 4.
func (p *plane) rest(x, y, size, bx, by int, predicted *[256]uint8) (b block) {
	for row := range 4 {
		for n := range 4 {
			b[row*4+n] = int32(p.pix[(y+by+row)*p.width+x+bx+n]) - int32(predicted[(by+row)*size+bx+n])
		}
	}
	return b
}

// restore writes what a decoder will have of a block.
func (p *plane) restore(x, y, size, bx, by int, predicted *[256]uint8, b *block) {
	for row := range 4 {
		for n := range 4 {
			p.pix[(y+by+row)*p.width+x+bx+n] = clip(int32(predicted[(by+row)*size+bx+n]) + b[row*4+n])
		}
	}
}
