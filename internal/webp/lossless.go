package webp

import (
	"cmp"
	"math/bits"
	"slices"
)

// bitWriter writes numbers of some bits, the lowest bit first.
type bitWriter struct {
	out  []byte
	acc  uint64
	have int
}

func (w *bitWriter) put(v uint32, n int) {
	w.acc |= uint64(v) << w.have
	for w.have += n; w.have >= 8; w.have -= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
}

func (w *bitWriter) finish() []byte {
	if w.have > 0 {
		w.out = append(w.out, byte(w.acc))
	}
	return w.out
}

const (
	literals    = 256
	alphabet    = literals + 24 // and lengths of runs
	shortestRun = 4
	longestRun  = 4096
	longestCode = 15
)

// compressAlpha writes an alpha channel as the green one of a lossless picture
// without header. Runs of one value are copied from the pixel to the left.
func compressAlpha(alpha []uint8) []byte {
	w := &bitWriter{}
	w.put(0, 3) // no transforms, no color cache, one set of codes
	var counts [alphabet]int
	bits := 0 // beside the codes
	eachRun(alpha, func(v uint8, run int) {
		counts[v]++
		if run > 0 {
			symbol, _, n := lengthSymbol(run)
			counts[literals+symbol]++
			bits += n
		}
	})
	lengths := codeLengths(counts[:])
	codes := canonical(lengths)
	for n, count := range counts {
		bits += count * lengths[n]
	}
	const header = 256 // bytes
	w.out = append(make([]byte, 0, header+bits/8), w.out...)
	// Green.
	w.put(0, 1)
	w.put(19-4, 4)
	for n := range 19 { // the lengths 0 to 15 in 4 bits each, no repetitions
		if n < 2 || n == 8 {
			w.put(0, 3)
		} else {
			w.put(4, 3)
		}
	}
	w.put(0, 1)
	for _, n := range lengths {
		w.put(reverse(uint32(n), 4), 4)
	}
	// Red, blue and alpha are always 0, the distance is that of the left pixel.
	for _, symbol := range []uint32{0, 0, 0, 1} {
		w.put(1, 1)
		w.put(0, 2)
		w.put(symbol, 1)
	}
	eachRun(alpha, func(v uint8, run int) {
		w.put(codes[v], lengths[v])
		if run > 0 {
			symbol, extra, n := lengthSymbol(run)
			w.put(codes[literals+symbol], lengths[literals+symbol])
			w.put(extra, n)
		}
	})
	return w.finish()
}

// eachRun calls each for every value, with how many of the same follow it that
// are worth a run.
func eachRun(alpha []uint8, each func(v uint8, run int)) {
	for n := 0; n < len(alpha); {
		run := 0
		for n+1+run < len(alpha) && alpha[n+1+run] == alpha[n] && run < longestRun {
			run++
		}
		if run < shortestRun {
			run = 0
		}
		each(alpha[n], run)
		n += 1 + run
	}
}

// lengthSymbol is the symbol of a run's length and what follows it.
func lengthSymbol(length int) (symbol int, extra uint32, extraBits int) {
	v := uint32(length - 1)
	if v < 2 {
		return int(v), 0, 0
	}
	high := bits.Len32(v) - 1
	second := v >> (high - 1) & 1
	return 2*high + int(second), v & (1<<(high-1) - 1), high - 1
}

// codeLengths are those of Huffman codes, at most longestCode. At least two
// symbols get one: a code of a single symbol is another form.
func codeLengths(counts []int) []int {
	counts = slices.Clone(counts)
	used := 0
	for _, c := range counts {
		if c > 0 {
			used++
		}
	}
	for n := 0; used < 2; n++ {
		if counts[n] == 0 {
			counts[n] = 1
			used++
		}
	}
	for {
		lengths := huffman(counts)
		if slices.Max(lengths) <= longestCode {
			return lengths
		}
		for n, c := range counts {
			if c > 0 {
				counts[n] = max(c/2, 1) // flatter, so shorter
			}
		}
	}
}

func huffman(counts []int) []int {
	type tree struct {
		weight  int
		symbols []int
	}
	var trees []tree
	for n, c := range counts {
		if c > 0 {
			trees = append(trees, tree{c, []int{n}})
		}
	}
	lengths := make([]int, len(counts))
	for len(trees) > 1 {
		slices.SortStableFunc(trees, func(a, b tree) int { return cmp.Compare(b.weight, a.weight) })
		a, b := trees[len(trees)-1], trees[len(trees)-2]
		joined := tree{a.weight + b.weight, slices.Concat(a.symbols, b.symbols)}
		for _, n := range joined.symbols {
			lengths[n]++
		}
		trees = append(trees[:len(trees)-2], joined)
	}
	return lengths
}

// canonical gives the codes of lengths, their first bit lowest.
func canonical(lengths []int) []uint32 {
	var count, next [longestCode + 2]uint32
	for _, n := range lengths {
		if n > 0 {
			count[n]++
		}
	}
	code := uint32(0)
	for n := 1; n <= longestCode; n++ {
		code = (code + count[n-1]) << 1
		next[n] = code
	}
	codes := make([]uint32, len(lengths))
	for s, n := range lengths {
		if n > 0 {
			codes[s] = reverse(next[n], n)
			next[n]++
		}
	}
	return codes
}

func reverse(code uint32, n int) uint32 { return bits.Reverse32(code) >> (32 - n) }
