//go:build unix

package request

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func plain(t *testing.T, w, h int, c color.Color) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(img, img.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

// A sheet shows each picture in its place, with its number in the corner.
func TestSheet(t *testing.T) {
	t.Parallel()
	colours := []color.RGBA{{R: 250, A: 255}, {G: 250, A: 255}, {B: 250, A: 255}, {R: 250, G: 250, A: 255}}
	for n := 2; n <= maxSheet; n++ {
		s := sheet{n: n}
		for i := range n {
			w := 1000
			if i == 1 {
				w = 500 // of another shape
			}
			require.NoError(t, s.add(i, plain(t, w, 500, colours[i])))
		}
		body := must.Get(s.read())(t)
		picture, format, err := image.Decode(body)
		require.NoError(t, err)
		require.Equal(t, "jpeg", format)
		rows := (n + 1) / 2
		require.Equal(t, image.Pt(2*640+cellGap, rows*320+(rows-1)*cellGap), picture.Bounds().Size())
		for i := range n {
			corner := image.Pt(i%2*(640+cellGap), i/2*(320+cellGap))
			middle := corner.Add(image.Pt(320, 160))
			r, g, b, _ := picture.At(middle.X, middle.Y).RGBA()
			want := colours[i]
			require.InDelta(t, want.R, r>>8, 20, "picture %d", i)
			require.InDelta(t, want.G, g>>8, 20, "picture %d", i)
			require.InDelta(t, want.B, b>>8, 20, "picture %d", i)
			dark, light := 0, 0
			for x := range 24 {
				for y := range 30 {
					r, g, b, _ := picture.At(corner.X+x, corner.Y+y).RGBA()
					switch sum := (r + g + b) >> 8; {
					case sum < 200:
						dark++
					case sum > 600:
						light++
					}
				}
			}
			require.Greater(t, dark, 20, "the number of picture %d", i)
			require.Greater(t, light, 20, "the number of picture %d", i)
		}
	}
}

func TestWhatMakesNoSheet(t *testing.T) {
	t.Parallel()
	huge := plain(t, 10, 10, color.White)
	copy(huge[16:24], []byte{0, 0, 0x40, 0, 0, 0, 0x40, 0}) // says that it has 16384 x 16384 pixels
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte("no picture"), "too many pixels": huge, "half": plain(t, 100, 100, color.White)[:60]} {
		require.ErrorIs(t, (&sheet{n: 2}).add(0, data), errNoSheet, name)
	}
	_, err := (&sheet{n: 2}).read()
	require.ErrorIs(t, err, errNoSheet)
}

// Two to four pictures come as one message with buttons for each; if that is impossible,
// as before.
func TestGrid(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	command := must.Get(workflow.NewCommand("g", workflow.Spec{Several: "grid"}, []byte(`{"1": {"class_type": "KSampler", "inputs": {"seed": 1}}}`)))(t)
	limits := platform.Limits{Photo: 1 << 20, File: 1 << 20, Album: 10, Caption: 1000}
	outputs := func(n int) func(*Record) {
		return func(r *Record) {
			r.Outputs = nil
			for i := range n {
				r.Outputs = append(r.Outputs, Output{Ref: comfyui.FileRef{Filename: string(rune('a'+i)) + ".png", Type: "output"}})
			}
		}
	}
	labels := func(p platform.Post) string {
		var b strings.Builder
		for _, row := range p.Buttons {
			for _, button := range row {
				b.WriteString(button.Label + " ")
			}
		}
		return b.String()
	}
	t.Run("three pictures", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command}
		require.Equal(t, Done, settle(t, store, p, outputs(3)))
		require.Len(t, p.sends, 1)
		require.Equal(t, []image.Point{{2*640 + cellGap, 2*640 + cellGap}}, p.read)
		require.Contains(t, labels(p.sends[0]), "U1 U2 U3 V1 V2 V3 ")
		require.Equal(t, 1, p.dropped, "the status message goes")
	})
	t.Run("five pictures", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command}
		require.Equal(t, Done, settle(t, store, p, outputs(5)))
		require.Len(t, p.sends[0].Files, 5)
		require.NotContains(t, labels(p.edits[0]), "U1")
	})
	t.Run("a platform of links", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command}
		p.limits.Linked = true
		require.Equal(t, Done, settle(t, store, p, outputs(4)))
		require.Len(t, p.sends[0].Files, 4)
		require.Contains(t, labels(p.edits[0]), "U4 V1", "under the message after the album")
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command, quiet: 1}
		require.Equal(t, InDoubt, settle(t, store, p, outputs(2)))
		require.Len(t, p.sends, 1, "it may have arrived")
	})
	t.Run("killed while it was sent", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command}
		require.Equal(t, InDoubt, settle(t, store, p, func(r *Record) {
			outputs(2)(r)
			r.Grid = true
			for i := range r.Outputs {
				r.Outputs[i].State, r.Outputs[i].Media = Sending, platform.Photo
			}
		}))
		require.Empty(t, p.sends)
	})
	t.Run("pictures that cannot be put on one", func(t *testing.T) {
		t.Parallel()
		p := &silent{limits: limits, command: command}
		require.Equal(t, Done, settle(t, store, p, func(r *Record) {
			outputs(2)(r)
			r.NoGrid = true
		}))
		require.Len(t, p.sends[0].Files, 2)
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Text{{Text: "a"}, {Text: "b"}}, bounded([]string{"a", "b"}, "cut"))
	long := strings.Repeat("ы", maxTextBytes)
	list := bounded([]string{"ab", "c", long, "d"}, "cut")
	require.Len(t, list, 3, "nothing comes after what was cut")
	require.True(t, strings.HasSuffix(list[2].Text, "ы…\ncut"), "no rune is cut in half")
	require.LessOrEqual(t, len(list[2].Text), maxTextBytes+len("…\ncut"))
	require.Nil(t, bounded(nil, "cut"))
}

// What a run made in words is said, whatever it made besides.
func TestTexts(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	shows := platform.Limits{Text: 100, Caption: 50, Photo: 1 << 20, File: 1 << 20}
	long := strings.Repeat("a red fox ", 30)
	for name, test := range map[string]struct {
		texts   []string
		picture bool
		change  func(*silent)
		sent    []string
		edited  []string
		dropped int
	}{
		"words alone":        {texts: []string{"a red fox"}, sent: []string{"a red fox"}, dropped: 1},
		"several":            {texts: []string{"fox", "snow"}, sent: []string{"fox", "snow"}, dropped: 1},
		"beside a picture":   {texts: []string{"a red fox"}, picture: true, sent: []string{"", "a red fox"}, dropped: 1},
		"no answer":          {texts: []string{"a red fox"}, change: func(s *silent) { s.quiet = 1 }, sent: []string{"a red fox", "a red fox"}, dropped: 1},
		"in place":           {texts: []string{"a red fox"}, change: func(s *silent) { s.limits.InPlace = true }, edited: []string{"a red fox"}},
		"too long":           {texts: []string{long}, sent: []string{platform.Clip(long, 50)}, dropped: 1},
		"too long for links": {texts: []string{long}, change: func(s *silent) { s.limits.Linked = true }, sent: []string{long[:100], long[100:200], long[200:]}, dropped: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &silent{limits: shows}
			if test.change != nil {
				test.change(p)
			}
			fate := settle(t, store, p, func(r *Record) {
				r.Texts = bounded(test.texts, "cut")
				if !test.picture {
					r.Outputs = nil
				}
			})
			require.Equal(t, Done, fate)
			var sent, edited []string
			for _, post := range p.sends {
				sent = append(sent, post.Text)
			}
			for _, post := range p.edits {
				edited = append(edited, post.Text)
			}
			require.Equal(t, test.sent, sent)
			require.Equal(t, test.edited, edited)
			require.Equal(t, test.dropped, p.dropped)
			if name == "too long" {
				body := must.Get(p.sends[0].Files[0].Open(t.Context()))(t)
				require.Equal(t, long, string(must.Get(io.ReadAll(body))(t)))
			}
			var rec Record
			must.Get(store.Requests.Load(t.Context(), IDOf(t.Name()), &rec))(t)
			for _, text := range rec.Texts {
				require.True(t, text.Told)
				require.Empty(t, text.Text, "what has been said is not kept")
			}
		})
	}
}
