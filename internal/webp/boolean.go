package webp

// booleans writes bits, each with the probability that it is 0, as RFC 6386,
// section 7, has it.
//
// What is written lies in segments: a slice that grows is copied again and again,
// and leaves several times its size behind.
type booleans struct {
	full   [][]byte // segments that are complete, but for carries
	out    []byte   // the last one
	bottom uint32
	rng    uint32 // 128 to 255
	room   int    // shifts until a byte is complete
}

// segmentSize is the length of a segment in bytes; the first is shorter.
const segmentSize = 32 << 10

func newBooleans() *booleans { return &booleans{rng: 255, room: 24, out: make([]byte, 0, 512)} }

// put writes a bit; prob is its probability to be 0, in 256ths.
func (b *booleans) put(bit bool, prob uint8) {
	split := 1 + ((b.rng-1)*uint32(prob))>>8
	if bit {
		b.bottom += split
		b.rng -= split
	} else {
		b.rng = split
	}
	for b.rng < 128 {
		b.rng <<= 1
		if b.bottom&(1<<31) != 0 {
			b.carry()
		}
		b.bottom <<= 1
		if b.room--; b.room == 0 {
			if len(b.out) == cap(b.out) {
				b.full = append(b.full, b.out)
				b.out = make([]byte, 0, segmentSize)
			}
			b.out = append(b.out, byte(b.bottom>>24))
			b.bottom &= 1<<24 - 1
			b.room = 8
		}
	}
}

// carry adds one to what is written.
func (b *booleans) carry() {
	segment, at := b.out, len(b.full)
	for {
		for n := len(segment) - 1; n >= 0; n-- {
			if segment[n]++; segment[n] != 0 {
				return
			}
		}
		at--
		segment = b.full[at]
	}
}

// number writes the lowest bits of a number, the highest of them first.
func (b *booleans) number(n uint32, bits int) {
	for bits--; bits >= 0; bits-- {
		b.put(n>>bits&1 == 1, 128)
	}
}

// finish returns all that was written, in pieces.
func (b *booleans) finish() [][]byte {
	// Enough zeros push out what is not complete.
	for range 40 {
		b.put(false, 128)
	}
	return append(b.full, b.out)
}
