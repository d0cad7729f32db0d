package sim

import "encoding/binary"

// sound is an AUDIO. It is silent: only its length matters.
type sound struct {
	seconds  float64
	rate     int // samples per second
	channels int // 1 or 2
	clips    int // of the batch
}

// encodeFLAC encodes silence losslessly: in each frame, each channel says that all
// its samples are 0.
func encodeFLAC(s sound) []byte {
	const block = 32_768 // samples per frame; keeps the number of the last frame small
	total := uint64(s.seconds * float64(s.rate))
	info := binary.BigEndian.AppendUint16(nil, block)
	info = binary.BigEndian.AppendUint16(info, block)
	info = append(info, make([]byte, 6)...) // sizes of frames: unknown
	const bits = 16
	info = binary.BigEndian.AppendUint64(info, uint64(s.rate)<<44|uint64(s.channels-1)<<41|uint64(bits-1)<<36|total)
	info = append(info, make([]byte, 16)...) // no checksum of the sound
	out := append([]byte("fLaC\x80\x00\x00"), byte(len(info)))
	out = append(out, info...)
	for frame := uint64(0); frame*block < total; frame++ {
		samples := min(block, total-frame*block)
		// Sync code, a fixed block size given at the end in 16 bits, the sample rate as in
		// the file header, 16 bits per sample.
		head := []byte{0xFF, 0xF8, 0x70, byte(s.channels-1)<<4 | 0x08}
		head = append(head, string(rune(frame))...) // numbers are written as in UTF-8
		head = binary.BigEndian.AppendUint16(head, uint16(samples-1))
		head = append(head, byte(crc(head, 0x07, 8)))
		for range s.channels {
			head = append(head, 0, 0, 0) // a constant subframe with value 0
		}
		out = append(out, binary.BigEndian.AppendUint16(head, crc(head, 0x8005, 16))...)
	}
	return out
}

// encodeMP3 encodes silence: frames without data. Sample rates other than 44.1 kHz
// are rounded to it.
func encodeMP3(s sound) []byte {
	const (
		samples = 1152 // of a frame
		rate    = 44_100
		size    = 417 // 128 kbit/s
	)
	var out []byte
	for n := 0; float64(n*samples) < s.seconds*rate; n++ {
		frame := make([]byte, size)
		copy(frame, []byte{0xFF, 0xFB, 0x90, 0x00})
		out = append(out, frame...)
	}
	return out
}

// crc computes a checksum of the given number of bits with a polynomial.
func crc(data []byte, polynomial uint16, bits int) uint16 {
	var sum uint32
	top := uint32(1) << (bits - 1)
	for _, b := range data {
		sum ^= uint32(b) << (bits - 8)
		for range 8 {
			over := sum&top != 0
			sum <<= 1
			if over {
				sum ^= uint32(polynomial)
			}
		}
		sum &= top<<1 - 1
	}
	return uint16(sum)
}
