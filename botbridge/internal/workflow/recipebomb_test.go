package workflow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// To follow every link of a graph as large as a file may hold would take minutes, and anybody
// can send one.
func TestRecipeOfAHugeGraphIsLeftAlone(t *testing.T) {
	graph := func(nodes, inputs int) string {
		var b strings.Builder
		for n := range nodes {
			fmt.Fprintf(&b, `,"%d":{"class_type":"KSampler","inputs":{"seed":7,"model":["%d",0]`, n, n-1)
			for i := range inputs {
				fmt.Fprintf(&b, `,"%d":["%d",0]`, i, n-1)
			}
			b.WriteString("}}")
		}
		return pngWith([3]string{"tEXt", "prompt", "{" + b.String()[1:] + "}"})
	}
	_, ok := ReadRecipe(strings.NewReader(graph(maxRecipeNodes, 0)))
	require.True(t, ok)
	for _, huge := range []string{graph(maxRecipeNodes+1, 0), graph(100, maxRecipeInputs/100), graph(20_000, 0)} {
		_, ok := ReadRecipe(strings.NewReader(huge))
		require.False(t, ok)
	}
}

// Thousands of tags may name the same long text: reading it for each would take hours.
func TestRecipeOfManyTagsReadsEachByteOnce(t *testing.T) {
	const tags, length = 60_000, 500_000
	text := "UNICODE\x00" + strings.Repeat("a\x00", length/2)
	tiff := binary.LittleEndian.AppendUint32([]byte("II*\x00"), 8)
	tiff = binary.LittleEndian.AppendUint16(tiff, tags)
	for range tags {
		tiff = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(tiff, tagComment), 7)
		tiff = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(tiff, uint32(len(text))), 10+tags*12)
	}
	e := embeddedTexts{texts: map[string]string{}}
	e.exif(append(tiff, text...))
	require.LessOrEqual(t, e.left, maxEmbedded)
	require.NotEmpty(t, e.texts["parameters"])
}

// A file may hold anything: reading it neither panics nor says what cannot be, and what a
// command takes of it can be asked for.
func FuzzRecipe(f *testing.F) {
	f.Add([]byte(pngWith([3]string{"tEXt", "parameters", infotext})))
	f.Add([]byte(pngWith([3]string{"zTXt", "parameters", "\x00" + zipped(infotext)})))
	f.Add([]byte(pngWith([3]string{"zTXt", "prompt", "\x00" + zipped(`{"3":{"class_type":"KSampler","inputs":{"seed":5,"model":["3",0]}}}`)})))
	f.Add([]byte(pngWith([3]string{"iTXt", "prompt", "\x00\x00\x00\x00" + textGraph})))
	f.Add([]byte(jpegWith(exifWith(binary.BigEndian, tagComment, utf16Of(infotext, binary.BigEndian)))))
	f.Add([]byte(jpegWith(exifWith(binary.LittleEndian, tagComment, "ASCII\x00\x00\x00"+infotext))))
	f.Add([]byte(webpWith(exifWith(binary.LittleEndian, tagModel, "prompt:"+textGraph))))
	c := must.Get(NewCommand("generate", Spec{MaxPixels: 1 << 18}, []byte(textGraph)))(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, ok := ReadRecipe(bytes.NewReader(data))
		if !ok {
			return
		}
		require.LessOrEqual(t, len([]rune(r.Prompt)), maxText/2)
		require.LessOrEqual(t, max(r.Width, r.Height), maxSide)
		require.GreaterOrEqual(t, min(r.Width, r.Height, r.Steps), 0)
		require.Equal(t, r.Width > 0, r.Height > 0)
		said := fmt.Sprint(r)
		require.True(t, utf8.ValidString(said), "%q", said)
		_, err := c.Settle(r.For(c))
		require.NoError(t, err)
	})
}
