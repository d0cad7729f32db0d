package webp

import "math"

// block is 4 by 4 numbers, row by row.
type block [16]int32

// forward is the discrete cosine transform of what is left after prediction.
func forward(in *block) (out block) {
	var t block
	for i := 0; i < 16; i += 4 {
		a0, a1 := in[i]+in[i+3], in[i+1]+in[i+2]
		a2, a3 := in[i+1]-in[i+2], in[i]-in[i+3]
		t[i] = (a0 + a1) * 8
		t[i+1] = (a2*2217 + a3*5352 + 1812) >> 9
		t[i+2] = (a0 - a1) * 8
		t[i+3] = (a3*2217 - a2*5352 + 937) >> 9
	}
	for i := range 4 {
		a0, a1 := t[i]+t[12+i], t[4+i]+t[8+i]
		a2, a3 := t[4+i]-t[8+i], t[i]-t[12+i]
		out[i] = (a0 + a1 + 7) >> 4
		out[4+i] = (a2*2217 + a3*5352 + 12000) >> 16
		if a3 != 0 {
			out[4+i]++
		}
		out[8+i] = (a0 - a1 + 7) >> 4
		out[12+i] = (a3*2217 - a2*5352 + 51000) >> 16
	}
	return out
}

// inverse is what every decoder makes of a transformed block, to the bit: the
// next blocks are predicted from it.
func inverse(in *block) (out block) {
	var t block
	for i := range 4 {
		a, b := in[i]+in[8+i], in[i]-in[8+i]
		c := mul2(in[4+i]) - mul1(in[12+i])
		d := mul1(in[4+i]) + mul2(in[12+i])
		t[i], t[4+i], t[8+i], t[12+i] = a+d, b+c, b-c, a-d
	}
	for i := 0; i < 16; i += 4 {
		dc := t[i] + 4
		a, b := dc+t[i+2], dc-t[i+2]
		c := mul2(t[i+1]) - mul1(t[i+3])
		d := mul1(t[i+1]) + mul2(t[i+3])
		out[i], out[i+1], out[i+2], out[i+3] = (a+d)>>3, (b+c)>>3, (b-c)>>3, (a-d)>>3
	}
	return out
}

func mul1(a int32) int32 { return a*20091>>16 + a }
func mul2(a int32) int32 { return a * 35468 >> 16 }

// forwardDC transforms the first numbers of the 16 blocks of a macroblock once
// more.
func forwardDC(in *block) (out block) {
	var t block
	for i := 0; i < 16; i += 4 {
		a0, a1 := in[i]+in[i+2], in[i+1]+in[i+3]
		a2, a3 := in[i+1]-in[i+3], in[i]-in[i+2]
		t[i], t[i+1], t[i+2], t[i+3] = a0+a1, a3+a2, a3-a2, a0-a1
	}
	for i := range 4 {
		a0, a1 := t[i]+t[8+i], t[4+i]+t[12+i]
		a2, a3 := t[4+i]-t[12+i], t[i]-t[8+i]
		out[i], out[4+i], out[8+i], out[12+i] = (a0+a1)>>1, (a3+a2)>>1, (a3-a2)>>1, (a0-a1)>>1
	}
	return out
}

// inverseDC undoes forwardDC as every decoder does.
func inverseDC(in *block) (out block) {
	var t block
	for i := range 4 {
		a0, a1 := in[i]+in[12+i], in[4+i]+in[8+i]
		a2, a3 := in[4+i]-in[8+i], in[i]-in[12+i]
		t[i], t[8+i], t[4+i], t[12+i] = a0+a1, a0-a1, a3+a2, a3-a2
	}
	for i := 0; i < 16; i += 4 {
		dc := t[i] + 3
		a0, a3 := dc+t[i+3], dc-t[i+3]
		a1, a2 := t[i+1]+t[i+2], t[i+1]-t[i+2]
		out[i], out[i+1], out[i+2], out[i+3] = (a0+a1)>>3, (a3+a2)>>3, (a0-a1)>>3, (a3-a2)>>3
	}
	return out
}

// steps are the steps of quantization of one kind of block.
type steps struct {
	dc, ac         int32
	dcBias, acBias int32 // what is added before the division, in 256ths of a step
}

// zigzag is the order in which a block's numbers are written.
var zigzag = [16]int{0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15}

// quantize divides a block from a place on, in the order of zigzag. levels is
// what is written, last the place of the last that is not 0 (-1 for none), and
// the block becomes what a decoder makes of it.
func (s *steps) quantize(b *block, first int) (levels [16]int16, last int) {
	const most = 2047
	last = -1
	for n := first; n < 16; n++ {
		at := zigzag[n]
		step, bias := s.ac, s.acBias
		if n == 0 {
			step, bias = s.dc, s.dcBias
		}
		v := b[at]
		size := max(v, -v)
		level := min((size*256+bias*step)/(256*step), most)
		if level != 0 {
			last = n
		}
		if v < 0 {
			level = -level
		}
		levels[n], b[at] = int16(level), level*step
	}
	return levels, last
}

// quantizer gives the index of quantization, 0 to 127, of a quality from 0 to
// 100. Its course is that of libwebp, so that numbers mean what clients expect.
func quantizer(quality int) int {
	linear := float64(min(max(quality, 0), 100)) / 100
	if linear < 0.75 {
		linear *= 2.0 / 3
	} else {
		linear = 2*linear - 1
	}
	return min(max(int(127*(1-math.Cbrt(linear))), 0), 127)
}
