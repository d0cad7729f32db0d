package conversation

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// described is a PNG that says how it was made.
func describedPNG(text string) string {
	data := "parameters\x00" + text
	return "\x89PNG\r\n\x1a\n" + string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + "tEXt" + data + "crc!" + "\x00\x00\x00\x00IENDcrc!"
}

// A picture of another program says how it was made, and another is made like it.
func TestRecipes(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 100, Messages: 100, Words: []string{"forbidden"}})
	r.p.files["png"] = describedPNG("a red fox\nNegative prompt: blurry\nSteps: 30, Sampler: Euler a, CFG scale: 6.5, Seed: 42, Size: 512x768")
	r.p.files["photo"] = "\xFF\xD8\xFF\xDA\x00\x02pixels"
	r.p.files["bad"] = describedPNG("a forbidden thing\nSteps: 30")
	bring := func(text, file string) platform.Event {
		e := r.message("5", "5", text, "")
		e.Message.Files = []platform.File{{ID: file, Type: "image/png"}}
		return e
	}
	require.Empty(t, r.asks(bring("/info", "png")))
	require.Equal(t, "a red fox\nWithout: blurry\nSeed 42 · 512x768 · 30 steps · CFG 6.5 · Euler a", r.heard("5"))
	posts, _ := r.sent()
	button := posts[len(posts)-1].Buttons[0][0]
	require.Equal(t, "🎨 Make one like it", button.Label)
	rec := r.record(r.pressed("5", "5", "b1", button.Data))
	require.Equal(t, "a red fox", rec.Args.Prompt)
	require.EqualValues(t, 42, rec.Args.Seed)
	require.Equal(t, 30, rec.Args.Steps)
	require.Equal(t, map[string]string{"cfg": "6.5"}, rec.Args.Set)

	e := r.message("5", "5", "/remix an owl --steps 9", "theirs")
	e.Message.ReplyTo.Files = []platform.File{{ID: "png", Type: "image/png"}}
	require.Equal(t, "generate an owl", r.asks(e))
	for _, rec := range r.active("5") {
		if rec.Args.Prompt == "an owl" {
			require.EqualValues(t, 42, rec.Args.Seed)
			require.Equal(t, 9, rec.Args.Steps)
			require.Equal(t, "theirs", rec.Message)
		}
	}
	for file, want := range map[string]string{"photo": "doesn't say how it was made", "bad": "won't make", "gone": "can't open your picture"} {
		for _, text := range []string{"/info", "/remix a wolf"} {
			require.Empty(t, r.asks(bring(text, file)))
			require.Contains(t, r.heard("5"), want, file)
		}
	}
	r.pressed("5", "5", "b1", verbRecipe+":nothing")
	before := len(r.active("6"))
	r.pressed("6", "6", "b1", button.Data)
	require.Len(t, r.active("6"), before, "what somebody else has brought is nobody's business, though its id can be guessed")
}
