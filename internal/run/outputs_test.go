package run

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// imagesFrom is an output of so many files, the first of which has a number.
func imagesFrom(first, count int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"images": [`)
	for n := range count {
		if n > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"filename": "a_%d_.png", "subfolder": "", "type": "output"}`, first+n)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// A run whose instance names more files than any run has is lost, before they cost Redis anything.
func TestRunOfTooManyFiles(t *testing.T) {
	type row struct {
		known   int
		message []byte
		lost    bool
	}
	beside.Cases(t, map[string]row{
		"in one message":           {0, imagesFrom(0, maxFiles+1), true},
		"together with others":     {maxFiles, imagesFrom(maxFiles, 1), true},
		"those that are known":     {maxFiles, imagesFrom(0, maxFiles), false},
		"the same again and again": {1, append(append([]byte(`[`), bytes.Repeat(append(imagesFrom(0, 1), ','), maxFiles)...), `0]`...), false},
	}, func(t *testing.T, c row) {
		r := testRun(Around{Logger: slog.New(slog.DiscardHandler)}, job.Job{})
		r.d.Files = nil // it would panic if it were asked for a name
		o := newOutputs(r)
		for n := range c.known {
			f := job.FileRef{Filename: fmt.Sprintf("a_%d_.png", n), Type: job.TypeOutput}
			o.names[f] = f
		}
		got, err := o.rename(c.message, unseen{})
		require.NoError(t, err)
		require.Equal(t, string(c.message), string(got))
		err = o.settle(t.Context())
		if !c.lost {
			require.NoError(t, err)
			return
		}
		res := collecting{r}.settled(t.Context(), err)
		require.Equal(t, lost, res.kind)
		require.Equal(t, Results, res.cause)
		require.Equal(t, "the instance names more than 10000 files", res.reason)
	})
}
