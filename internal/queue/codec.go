package queue

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/job"
)

// copyStep is how many bytes are copied at a time. A copy cannot be interrupted, and the whole hub
// waits for it to end when a garbage collection begins.
const copyStep = 256 << 10

// maxUnpacked bounds the size of a stored value once it is read: anything larger is damaged, or a
// decompression bomb.
const maxUnpacked = 512 << 20

// codec encodes bodies and history entries as stored values and decodes them.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	return &codec{enc: enc, dec: dec}, nil
}

// compress turns bytes into a stored value.
func (c *codec) compress(data []byte) []byte {
	return c.enc.EncodeAll(data, make([]byte, 0, len(data)/4+64))
}

// expand undoes compress.
func (c *codec) expand(stored []byte) ([]byte, error) {
	data, err := c.dec.DecodeAll(stored, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// The fields of a stored body, each with a tag, a length and its bytes. Readers
// skip tags that they do not know, so that hubs of two versions can share a queue.
// Secrets are stored elsewhere, Requires with the class.
const (
	tagPrompt  = 1
	tagExtra   = 2
	tagOutput  = 3 // one per output node
	tagTargets = 4
	tagInputs  = 5
	tagTrace   = 6
	tagOther   = 7
	tagSubject = 8
)

func appendField(dst []byte, tag uint64, data []byte) []byte {
	dst = binary.AppendUvarint(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	for part := range slices.Chunk(data, copyStep) {
		dst = append(dst, part...)
	}
	return dst
}

// encodeBody encodes a body.
func (c *codec) encodeBody(b job.Body) []byte {
	size := 64 + len(b.Prompt) + len(b.Extra) + len(b.Targets) + len(b.Inputs) + len(b.Other)
	data := make([]byte, 0, size)
	data = appendField(data, tagPrompt, b.Prompt)
	data = appendField(data, tagExtra, b.Extra)
	for _, output := range b.Outputs {
		data = appendField(data, tagOutput, []byte(output))
	}
	if b.Targets != nil {
		data = appendField(data, tagTargets, b.Targets)
	}
	if b.Inputs != nil {
		data = appendField(data, tagInputs, b.Inputs)
	}
	if b.Trace != "" {
		data = appendField(data, tagTrace, []byte(b.Trace))
	}
	if b.Other != nil {
		data = appendField(data, tagOther, b.Other)
	}
	if b.Subject != nil {
		data = appendField(data, tagSubject, b.Subject)
	}
	return c.compress(data)
}

// decodeBody undoes encodeBody.
func (c *codec) decodeBody(stored []byte) (job.Body, error) {
	data, err := c.expand(stored)
	if err != nil {
		return job.Body{}, err
	}
	return parseBody(data)
}

func parseBody(data []byte) (job.Body, error) {
	var b job.Body
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return job.Body{}, fmt.Errorf("%w: tag of a body", ErrCorrupt)
		}
		data = data[n:]
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return job.Body{}, fmt.Errorf("%w: length in a body", ErrCorrupt)
		}
		value := data[n : n+int(size) : n+int(size)]
		data = data[n+int(size):]
		switch tag {
		case tagPrompt:
			b.Prompt = value
		case tagExtra:
			b.Extra = value
		case tagOutput:
			b.Outputs = append(b.Outputs, string(value))
		case tagTargets:
			b.Targets = value
		case tagInputs:
			b.Inputs = value
		case tagTrace:
			b.Trace = string(value)
		case tagOther:
			b.Other = value
		case tagSubject:
			b.Subject = value
		}
	}
	return b, nil
}
