package request

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// What moderation does not let through is shown nowhere, and what it covers is covered
// everywhere.
func TestResultsAreJudged(t *testing.T) {
	t.Parallel()
	store := ledStore(t)
	two := func(r *Record) {
		r.Args.Prompt = "a fox"
		r.Outputs = append(r.Outputs, Output{Ref: comfyui.FileRef{Filename: "b.png", Type: "output"}})
	}
	for name, c := range map[string]struct {
		verdicts map[string]Verdict
		limits   platform.Limits
		change   func(*Record)
		want     Outcome
		files    map[string]bool // what is shown; true if it is covered
		says     string
	}{
		"all shown":     {map[string]Verdict{"a.png": Allowed, "b.png": Allowed}, platform.Limits{Album: 10}, two, Done, map[string]bool{"a.png": false, "b.png": false}, ""},
		"one covered":   {map[string]Verdict{"a.png": Allowed, "b.png": Covered}, platform.Limits{Album: 10}, two, Done, map[string]bool{"a.png": false, "b.png": true}, ""},
		"one withheld":  {map[string]Verdict{"a.png": Withheld, "b.png": Allowed}, platform.Limits{Album: 10}, two, Hidden, map[string]bool{"b.png": false}, "1 file isn't shown here: because"},
		"all withheld":  {map[string]Verdict{"a.png": Withheld, "b.png": Withheld}, platform.Limits{Album: 10}, two, Hidden, map[string]bool{}, "2 files aren't shown here: because"},
		"in place":      {map[string]Verdict{"a.png": Covered}, platform.Limits{Album: 10, InPlace: true}, nil, Done, map[string]bool{"a.png": true}, ""},
		"not in place":  {map[string]Verdict{"a.png": Withheld}, platform.Limits{Album: 10, InPlace: true}, nil, Hidden, map[string]bool{}, "1 file isn't shown here"},
		"too large":     {map[string]Verdict{"a.png": Withheld}, platform.Limits{File: 1}, nil, Hidden, map[string]bool{}, "1 file isn't shown here"},
		"sent before":   {nil, platform.Limits{}, func(r *Record) { r.Outputs[0].State = Arrived }, Done, map[string]bool{}, ""},
		"judged before": {nil, platform.Limits{}, func(r *Record) { r.Outputs[0].Verdict = Covered }, Done, map[string]bool{"a.png": true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.limits.File == 0 {
				c.limits.File = 1 << 20
			}
			c.limits.Photo, c.limits.Text, c.limits.Caption = 1<<20, 4096, 1024
			p := &silent{limits: c.limits}
			p.judge = func(ctx context.Context, r Result) (Verdict, string, error) {
				data, err := r.Read(ctx)
				require.NoError(t, err)
				require.NotEmpty(t, data)
				verdict, known := c.verdicts[r.Name]
				require.True(t, known, "nobody asked for this one")
				return verdict, "because", nil
			}
			require.Equal(t, c.want, settle(t, store, p, c.change))
			files, said := map[string]bool{}, ""
			for _, post := range append(p.sends, p.edits...) {
				said += post.Text + "\n"
				for _, f := range post.Files {
					files[f.Name] = f.Spoiler
				}
			}
			require.Equal(t, c.files, files)
			require.Contains(t, said, c.says)

			// Nor later, as a file.
			r := NewRunner(Options{Store: store, Platform: func(string) platform.Platform { return p }, Judge: p.judge})
			for i := range 2 {
				if c.verdicts[[]string{"a.png", "b.png"}[i]] == Withheld {
					want := &KeptError{N: 1, Reason: "because"}
					require.Equal(t, want, r.SendOne(t.Context(), IDOf(t.Name()), i))
					rec, err := r.Load(t.Context(), IDOf(t.Name()))
					require.NoError(t, err)
					require.Equal(t, want, r.SendTo(t.Context(), rec, []int{i}, platform.Chat{ID: "7"}, platform.Post{}))
				}
			}
		})
	}
}

// A judge that cannot be asked now is asked again, and nothing is shown meanwhile.
func TestJudgeIsAskedAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	j := newJob(NewRunner(Options{Judge: func(context.Context, Result) (Verdict, string, error) {
		asked++
		return Unjudged, "", errors.New("not now")
	}}), Record{}, 0, nil, 0)
	j.rec.Outputs = []Output{{}}
	require.Error(t, j.files.judge(t.Context(), false))
	require.Error(t, j.files.judge(t.Context(), false))
	require.Equal(t, 2, asked)
	require.Equal(t, Unjudged, j.rec.Outputs[0].Verdict)
}
