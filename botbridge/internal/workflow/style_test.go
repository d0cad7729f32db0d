package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const styledGraph = `{
	"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}},
	"2": {"class_type": "Text", "inputs": {"text": "y"}, "_meta": {"title": "negative"}},
	"3": {"class_type": "Sampler", "inputs": {"seed": 1, "steps": 20, "cfg": 7.5}},
	"4": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}}}`

func styledCommand(t *testing.T, styles ...Style) (*Command, map[string]error) {
	t.Helper()
	c, err := NewCommand("generate", Spec{Inputs: map[Role]string{Seed: "3.seed", Steps: "3.steps"}}, []byte(styledGraph))
	require.NoError(t, err)
	return c.WithStyles(styles)
}

func TestStyles(t *testing.T) {
	t.Parallel()
	c, misfits := styledCommand(t,
		Style{Name: "film", Spec: StyleSpec{Prompt: "{prompt}, 35mm film", Negative: "cartoon", Arguments: map[string]string{"cfg": "4", "steps": "30", "ar": "2:1"}}},
		Style{Name: "pixel-art", Spec: StyleSpec{Prompt: "pixel art of {prompt}"}},
	)
	require.Empty(t, misfits)
	for text, want := range map[string][]string{
		"a fox --style film": {`"text": "a fox, 35mm film"`, `"text": "cartoon"`, `"cfg": 4`, `"steps": 30`, `"width": 720`, `"height": 360`},
		// What the message says itself counts more, and its negative words stay.
		"a fox --style Film --steps 8 --no text --size 256x256": {`"steps": 8`, `"text": "text, cartoon"`, `"width": 256`},
		"a fox --style pixelart,film":                           {`"text": "pixel art of a fox, 35mm film"`},
		"a {prompt} --style=film --style pixel_art":             {`"text": "pixel art of a {prompt}, 35mm film"`},
		"a fox":        {`"text": "a fox"`, `"text": "y"`, `"cfg": 7.5`, `"steps": 20`, `"width": 512`},
		"--style film": {`"text": "35mm film"`},
	} {
		args, err := c.Parse(text)
		require.NoError(t, err, text)
		args, err = c.Settle(args)
		require.NoError(t, err, text)
		require.NotContains(t, args.Words(), "35mm", "the words of a style are not the user's")
		graph := string(c.Fill(args, Files{}))
		for _, part := range want {
			require.Contains(t, graph, part, text)
		}
	}
	for text, key := range map[string]string{
		"a fox --style flim": "style_near", "a fox --style watercolour": "style_unknown", "a --style film,film,film,film": "style_many",
		"a fox --styel film": "flag_near", "a fox --style": "flag_value",
	} {
		args, err := c.Parse(text)
		if err == nil {
			_, err = c.Settle(args)
		}
		var complaint *Complaint
		require.ErrorAs(t, err, &complaint, text)
		require.Equal(t, key, complaint.Key, text)
	}
	args, err := c.Settle(Args{Prompt: "a fox", Styles: []string{"film"}})
	require.NoError(t, err)
	require.Equal(t, "30", c.Value(Steps, args))
	require.Equal(t, "720x360", c.Value(Size, args))
}

func TestStylesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]StyleSpec{
		"it takes no --guidance":     {Arguments: map[string]string{"guidance": "3"}},
		"no style sets --n":          {Arguments: map[string]string{"n": "4"}},
		"no style sets --seed":       {Arguments: map[string]string{"seed": "4"}},
		"it takes no --steps 900":    {Arguments: map[string]string{"steps": "900"}},
		"--size cannot be big":       {Arguments: map[string]string{"size": "big"}},
		"it takes no --model x":      {Arguments: map[string]string{"model": "x"}},
		"the style does not name it": {Negative: "x", Commands: []string{"edit"}},
	} {
		c, misfits := styledCommand(t, Style{Name: "s", Spec: spec})
		require.ErrorContains(t, misfits["s"], name)
		require.Empty(t, c.Styles())
		args, err := c.Parse("a fox --style s")
		require.Error(t, err, "there is no such flag: %v", args)
	}
	require.NotEmpty(t, StyleSpec{Prompt: "film"}.Problems())
	require.NotEmpty(t, StyleSpec{}.Problems())
	require.Empty(t, StyleSpec{Prompt: "{prompt}!"}.Problems())
}

// The fleet decides what a value may be.
func TestStylesAgainstTheFleet(t *testing.T) {
	t.Parallel()
	catalog, err := ParseCatalog([]byte(`{"Sampler": {"input": {"required": {"cfg": ["FLOAT", {"min": 0, "max": 100}]}}}}`))
	require.NoError(t, err)
	for value, want := range map[string]int{"4": 0, "4.50": 0, "400": 1, "much": 1} {
		c, misfits := styledCommand(t, Style{Name: "s", Spec: StyleSpec{Arguments: map[string]string{"cfg": value}}})
		require.Empty(t, misfits)
		require.Len(t, c.styleProblems(catalog), want, value)
	}
}
