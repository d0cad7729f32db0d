package request

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// box is a box of an MP4.
func box(name string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.BigEndian.AppendUint32(nil, uint32(boxHead+len(body))), append([]byte(name), body...)...)
}

// words are numbers of 32 bits.
func words(list ...uint32) (out []byte) {
	for _, n := range list {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// track is the head of a track, turned by a right angle or not.
func track(w, h uint32, turned bool) []byte {
	matrix := words(1<<16, 0, 0, 0, 1<<16, 0, 0, 0, 1<<30)
	if turned {
		matrix = words(0, 1<<16, 0, ^uint32(1<<16-1), 0, 0, 0, 0, 1<<30)
	}
	return box("trak", box("tkhd", make([]byte, 40), matrix, words(w<<16, h<<16)), box("mdia"))
}

func TestFilm(t *testing.T) {
	t.Parallel()
	length := box("mvhd", words(0, 0, 0, 1000, 4250), make([]byte, 80))
	long := box("mvhd", words(1<<24, 0, 0, 0, 0, 24, 0, 48), make([]byte, 80))
	data := box("mdat", make([]byte, 5000))
	want := film{640, 368, 4250 * time.Millisecond}
	for name, c := range map[string]struct {
		file []byte
		want film
	}{
		"described first":    {bytes.Join([][]byte{box("ftyp"), box("moov", length, track(640, 368, false)), data}, nil), want},
		"described last":     {bytes.Join([][]byte{box("ftyp"), data, box("moov", length, track(640, 368, false))}, nil), want},
		"with sound":         {box("moov", length, track(640, 368, false), track(0, 0, false)), want},
		"turned":             {box("moov", length, track(368, 640, true)), want},
		"long numbers":       {box("moov", long, track(64, 32, false)), film{64, 32, 2 * time.Second}},
		"a long length":      {append(append(words(1), "mdat"+string(words(0, 2*boxHead+4))+"data"...), box("moov", length)...), film{Length: want.Length}},
		"no length":          {box("moov", box("mvhd", words(0, 0, 0, 0, 9)), track(640, 368, false)), film{640, 368, 0}},
		"cut off":            {box("moov", length, track(640, 368, false))[:60], film{}},
		"a box of no size":   {words(0, 0, 0, 0), film{}},
		"a negative length":  {append(words(1), "mdat"+string(words(1<<31, 0))...), film{}},
		"too large to read":  {append(words(maxMoov+100), "moov"...), film{}},
		"no video":           {[]byte(strings.Repeat("text", 100)), film{}},
		"nothing":            {nil, film{}},
		"a box in a box out": {box("moov", append(words(500), "trak"...)), film{}},
	} {
		require.Equal(t, c.want, filmOf(bytes.NewReader(c.file)), name)
	}
}

func FuzzFilm(f *testing.F) {
	f.Add(box("moov", box("mvhd", words(0, 0, 0, 1000, 4250)), track(640, 368, true)))
	f.Add(append(words(1), "mdat"+string(words(1<<31, 0))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		found := filmOf(bytes.NewReader(data))
		if found.Width < 0 || found.Height < 0 || found.Length < 0 || found.Length > 25*time.Hour {
			t.Errorf("%+v", found)
		}
	})
}
