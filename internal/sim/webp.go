package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"

	"github.com/comfyhub/comfyhub/internal/webp"
)

// rows gives the encoder a picture's rows.
type rows struct{ *image.NRGBA }

func (r rows) Row(y int, _ []uint8) []uint8 { return r.Pix[y*r.Stride:][:4*r.Rect.Dx()] }

// encodeWebP encodes a picture as a complete file. A picture may be too large for it.
func encodeWebP(img *image.NRGBA, quality int) ([]byte, error) {
	var out bytes.Buffer
	err := webp.Encode(context.Background(), &out, rows{img}, quality)
	return out.Bytes(), err
}

// encodeAnimatedWebP encodes pictures of one size as an endless animation.
func encodeAnimatedWebP(frames images, fps float64) ([]byte, error) {
	w, h := uint32(frames[0].Bounds().Dx()-1), uint32(frames[0].Bounds().Dy()-1)
	const animated, alpha = 0x02, 0x10
	chunks := [][]byte{
		chunk("VP8X", []byte{animated | alpha, 0, 0, 0}, uint24(w), uint24(h)),
		chunk("ANIM", make([]byte, 6)), // no background, endless
	}
	var data []byte
	for i, img := range frames {
		if i == 0 || img != frames[i-1] { // batches often repeat a picture
			file, err := encodeWebP(img, 80)
			if err != nil {
				return nil, err
			}
			data = file[len("RIFFsizeWEBP"):]
			if bytes.HasPrefix(data, []byte("VP8X")) { // the file has one for all frames
				data = data[18:]
			}
		}
		chunks = append(chunks, chunk("ANMF", uint24(0), uint24(0), uint24(w), uint24(h), uint24(uint32(1000/fps)), []byte{0}, data))
	}
	return chunk("RIFF", append([][]byte{[]byte("WEBP")}, chunks...)...), nil
}

// chunk returns a chunk of a file: its kind, its length and its content, padded to
// an even length.
func chunk(kind string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	out := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(body)))
	out = append(out, body...)
	if len(body)%2 == 1 {
		out = append(out, 0)
	}
	return out
}

func uint24(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16)} }
