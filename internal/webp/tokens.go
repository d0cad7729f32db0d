package webp

import "math"

const (
	kinds    = 4
	bands    = 8
	contexts = 3
	nodes    = 11
	// probCount is the number of probabilities that a frame may change.
	probCount = kinds * bands * contexts * nodes
)

// The kinds of blocks: luma without its first number, the first numbers of
// luma, and chroma.
const (
	kindLuma   = 0
	kindDC     = 1
	kindChroma = 2
)

// bandOf is the band of a place in a block; behind the end it does not matter.
var bandOf = [17]int{0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 0}

// The probabilities of the bits of large numbers.
var (
	category3 = []uint8{173, 148, 140}
	category4 = []uint8{176, 155, 140, 135}
	category5 = []uint8{180, 157, 141, 134, 130}
	category6 = []uint8{254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129}
)

// maxTokens is how many tokens are kept at most.
const maxTokens = 2 << 20

// tokens are the bits of all blocks in their order, each with what its
// probability is: a number below probCount for one that the frame decides, or
// probCount plus a fixed one. They are kept because the best probabilities are
// known only when many were seen. Those of the first maxTokens decide for a
// large picture, which then needs no memory for the others.
type tokens struct {
	kept  [][]uint16
	count int
	seen  [probCount][2]uint32
	// written is where tokens go once the probabilities are decided.
	written *booleans
	probs   [probCount]uint8
	changed [probCount]bool
}

func (t *tokens) put(bit bool, prob int) {
	if t.written != nil {
		t.write(bit, prob)
		return
	}
	v := uint16(prob) << 1
	n := 0
	if bit {
		v, n = v|1, 1
	}
	last := len(t.kept) - 1
	if last < 0 || len(t.kept[last]) == cap(t.kept[last]) {
		t.kept = append(t.kept, make([]uint16, 0, segmentSize/2))
		last++
	}
	t.kept[last] = append(t.kept[last], v)
	if prob < probCount {
		t.seen[prob][n]++
	}
	if t.count++; t.count == maxTokens {
		t.decide()
	}
}

// write encodes a token.
func (t *tokens) write(bit bool, prob int) {
	if prob < probCount {
		t.written.put(bit, t.probs[prob])
	} else {
		t.written.put(bit, uint8(prob-probCount))
	}
}

// decide sets the probabilities and encodes what was kept.
func (t *tokens) decide() {
	t.probs, t.changed = t.probabilities()
	t.written = newBooleans()
	for n, segment := range t.kept {
		for _, v := range segment {
			t.write(v&1 == 1, int(v>>1))
		}
		t.kept[n] = nil
	}
	t.kept = nil
}

// finish returns all tokens, encoded.
func (t *tokens) finish() [][]byte {
	if t.written == nil {
		t.decide()
	}
	return t.written.finish()
}

func (t *tokens) fixed(bit bool, prob uint8) { t.put(bit, probCount+int(prob)) }

// add writes a block; context is how many of its neighbours above and to the
// left are not empty. It reports whether the block is not empty.
func (t *tokens) add(kind, context, first int, levels *[16]int16, last int) bool {
	at := func(n, context int) int { return ((kind*bands+bandOf[n])*contexts + context) * nodes }
	p := at(first, context)
	t.put(last >= 0, p)
	if last < 0 {
		return false
	}
	for n := first; n < 16; {
		level := int(levels[n])
		n++
		size := max(level, -level)
		t.put(size != 0, p+1)
		if size == 0 {
			p = at(n, 0)
			continue
		}
		t.put(size > 1, p+2)
		if size > 1 {
			t.size(size, p)
			p = at(n, 2)
		} else {
			p = at(n, 1)
		}
		t.fixed(level < 0, 128)
		if n == 16 {
			break
		}
		t.put(n <= last, p)
		if n > last {
			break
		}
	}
	return true
}

// size writes a number above 1.
func (t *tokens) size(v, p int) {
	t.put(v > 4, p+3)
	if v <= 4 {
		t.put(v != 2, p+4)
		if v != 2 {
			t.put(v == 4, p+5)
		}
		return
	}
	t.put(v > 10, p+6)
	if v <= 10 {
		t.put(v > 6, p+7)
		if v <= 6 {
			t.fixed(v == 6, 159)
		} else {
			t.fixed(v >= 9, 165)
			t.fixed(v&1 == 0, 145)
		}
		return
	}
	var extra []uint8
	high := v >= 3+8<<2
	t.put(high, p+8)
	switch {
	case v < 3+8<<1:
		t.put(false, p+9)
		v, extra = v-(3+8), category3
	case !high:
		t.put(true, p+9)
		v, extra = v-(3+8<<1), category4
	case v < 3+8<<3:
		t.put(false, p+10)
		v, extra = v-(3+8<<2), category5
	default:
		t.put(true, p+10)
		v, extra = v-(3+8<<3), category6
	}
	for n, prob := range extra {
		t.fixed(v>>(len(extra)-1-n)&1 == 1, prob)
	}
}

// probabilities are the best for what was written, where a change is worth its
// bits.
func (t *tokens) probabilities() (probs [probCount]uint8, changed [probCount]bool) {
	for n := range probs {
		zeros, ones := float64(t.seen[n][0]), float64(t.seen[n][1])
		probs[n] = defaultProbs[n]
		if zeros+ones == 0 {
			continue
		}
		best := uint8(min(max(256*zeros/(zeros+ones), 1), 255))
		kept := cost(zeros, ones, defaultProbs[n]) + cost(1, 0, updateProbs[n])
		other := cost(zeros, ones, best) + cost(0, 1, updateProbs[n]) + 8
		if other < kept {
			probs[n], changed[n] = best, true
		}
	}
	return probs, changed
}

// cost is how many bits so many zeros and ones take.
func cost(zeros, ones float64, prob uint8) float64 {
	p := max(float64(prob), 0.5) / 256
	return -zeros*math.Log2(p) - ones*math.Log2(1-p)
}
