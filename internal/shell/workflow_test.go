package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const changed = `{"6": {"class_type": "X", "inputs": {"text": "a", "seed": 18446744073709551615, "on": true, "link": ["1", 0], "a.b": 1}, "_meta": {"title": "A.B"}}, "12:7": {"class_type": "Y", "inputs": {"text": "b"}}}`

// A value is of the kind that the input has; everything else stays as it is.
func TestSet(t *testing.T) {
	t.Parallel()
	for change, want := range map[string][2]string{
		`6.text=a fox`:     {`"text": "a"`, `"text": "a fox"`},
		`6.text=`:          {`"text": "a"`, `"text": ""`},
		`6.text=5`:         {`"text": "a"`, `"text": "5"`},
		`6.text=a=b:=c`:    {`"text": "a"`, `"text": "a=b:=c"`},
		`6.text:=["4", 1]`: {`"text": "a"`, `"text": ["4", 1]`},
		`6.seed=7`:         {`18446744073709551615`, `7`},
		`6.on=false`:       {`true`, `false`},
		`6.link=0.5`:       {`["1", 0]`, `0.5`},
		`6.link=x y`:       {`["1", 0]`, `"x y"`},
		`6.a.b=2`:          {`"a.b": 1`, `"a.b": 2`},
		`A.B.text=c`:       {`"text": "a"`, `"text": "c"`},
		`12:7.text=c`:      {`"text": "b"`, `"text": "c"`},
	} {
		w := must.Get(readWorkflow([]byte(changed)))(t)
		require.NoError(t, w.set(change), change)
		require.Equal(t, strings.Replace(changed, want[0], want[1], 1), string(pyjson.Marshal(w.graph)), change)
	}
	for change, says := range map[string]string{
		`6.text`: "must be NODE.INPUT", `=`: "no such node", `6=1`: "no such node", `6.txt=1`: "no input",
		`6.on=1`: "true or false", `6.seed=x`: "number", `6.text:=x`: "JSON", `A.B=x`: "no such node",
	} {
		w := must.Get(readWorkflow([]byte(changed)))(t)
		require.ErrorContains(t, w.set(change), says, change)
	}
	w := must.Get(readWorkflow([]byte(`{"nodes": [], "links": []}`)))(t)
	require.ErrorContains(t, w.set("6.text=a"), "API format")
}

// A file goes with the job.
func TestEmbed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.png")
	require.NoError(t, os.WriteFile(file, []byte("\x89PNG\x0d\x0a\x1a\x0a"), 0o600))
	w := must.Get(readWorkflow([]byte(changed)))(t)
	require.NoError(t, w.embed("6.text="+file))
	require.Equal(t, "data:image/png;base64,iVBORw0KGgo=", w.graph.Object("6").Object("inputs").String("text"))
}

// A workflow that is not changed is sent as it is.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := must.Get(readWorkflow([]byte("{ \"1\": \t{\"ü\": 1e400}}")))(t)
	require.Equal(t, "{\"workflow\": { \"1\": \t{\"ü\": 1e400}}, \"idempotency_key\": \"k\", \"priority\": -5, \"band\": \"bulk\"}", string(w.order(-5, "bulk", "k")))
}

func FuzzSet(f *testing.F) {
	f.Add(changed, "6.text=a")
	f.Add(changed, "A.B.text:=[]")
	f.Add(`{"1": {"inputs": 5, "_meta": []}, "2": null}`, "1.x=y")
	f.Fuzz(func(t *testing.T, text, change string) {
		w, err := readWorkflow([]byte(text))
		if err != nil || w.set(change) != nil {
			return
		}
		v := must.Get(pyjson.Parse(w.order(1, "", "k")))(t)
		o, _ := v.(*pyjson.Object)
		require.NotNil(t, o.Object("workflow"))
		require.Equal(t, []string{"workflow", "idempotency_key", "priority"}, o.Keys())
	})
}
