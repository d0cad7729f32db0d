package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
)

func described(name, list string) string {
	return `"` + name + `": {"input": {"required": {"file": [` + list + `]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"}`
}

func TestPatch(t *testing.T) {
	t.Parallel()
	library := catalog.NewLibrary()
	parse := func(text string) *catalog.Info {
		info, err := library.Parse([]byte(text))
		require.NoError(t, err)
		return info
	}
	before := parse(`{` + described("A", `["a.pt"]`) + `, ` + described("B", `["b.pt"]`) + `}`)
	for name, body := range map[string]string{
		"as it was":           `{` + described("A", `["a.pt"]`) + `}`,
		"an unknown class":    `{}`,
		"a class it has not":  `{` + described("C", `["c.pt"]`) + `}`,
		"what cannot be read": `{"A": {"input": 3}}`,
	} {
		info, changed, err := library.Patch(before, []byte(body))
		require.NoError(t, err, name)
		require.False(t, changed, name)
		require.Same(t, before, info, name)
	}
	for _, body := range []string{"", "[]", `{"A": `, `{} {}`} {
		_, _, err := library.Patch(before, []byte(body))
		require.Error(t, err, body)
	}
	has := func(info *catalog.Info, class, file string) bool {
		_, ok := info.Spelling(class, "file", file)
		return ok
	}
	after, changed, err := library.Patch(before, []byte(`{`+described("A", `["new.pt"]`)+`}`))
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, has(after, "A", "new.pt"))
	require.False(t, has(after, "A", "a.pt"))
	require.True(t, has(after, "B", "b.pt"))
	require.True(t, has(before, "A", "a.pt"), "what others hold stays as it is")
	require.NotEqual(t, before.Hash(), after.Hash())
	again, _, err := library.Patch(before, []byte(`{`+described("A", `["new.pt"]`)+`}`))
	require.NoError(t, err)
	require.Equal(t, after.Hash(), again.Hash(), "instances that share a folder stay equal")
}

// Classes whose lists are worth reading again are those with a value that a
// folder could have by now.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, `{`+described("Loader", `["a.pt"]`)+`,
		"Pack": {"input": {"required": {"file": [["a.pt"]]}}, "output": ["MODEL"], "output_node": true, "python_module": "custom_nodes.pack"},
		"Far": {"input": {"required": {"file": ["COMBO", {"options": [], "remote": {"route": "/far"}}]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"},
		"Up": {"input": {"required": {"file": [["a.png"], {"image_upload": true}]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"}}`))
	for _, c := range []struct {
		class, file string
		own         bool
		accepted    bool
		want        []string
	}{
		{class: "Loader", file: "a.pt", accepted: true},
		{class: "Loader", file: "new.pt", want: []string{"Loader"}},
		{class: "Pack", file: "new.pt", accepted: true, want: []string{"Pack"}},
		{class: "Far", file: "new.pt", accepted: true},
		{class: "Up", file: "mine.png", accepted: true},
		{class: "Up", file: "new.png", accepted: true, want: []string{"Up"}},
		{class: "Up", file: "new.png", own: true}, // it would be somebody else's
	} {
		verdict := cat.Validate(catalog.Prompt{
			Graph:    parseGraph(t, `{"1": {"class_type": "`+c.class+`", "inputs": {"file": "`+c.file+`"}}, "2": {"class_type": "`+c.class+`", "inputs": {"file": "`+c.file+`"}}}`),
			Version:  older,
			Known:    func(f job.FileRef) bool { return f.Filename == "mine.png" },
			OwnFiles: c.own,
		})
		require.Equal(t, c.accepted, verdict.Accepted(), "%+v", c)
		require.Equal(t, c.want, verdict.Unlisted, "%+v", c)
	}
}

// Folders of several instances make one folder in order; lists that are not in
// order, or name no files, keep theirs.
func TestFoldersInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ one, two, want string }{
		{`["b.pt", "d.pt"]`, `["a.pt", "c.pt"]`, `["a.pt", "b.pt", "c.pt", "d.pt"]`},
		{`["b.pt"]`, `[]`, `["b.pt"]`},
		{`["d.pt", "b.pt"]`, `["a.pt"]`, `["d.pt", "b.pt", "a.pt"]`},
		{`["euler", "heun"]`, `["ddim", "euler"]`, `["euler", "heun", "ddim"]`},
	} {
		cat := fleet(parseInfo(t, `{`+described("A", c.one)+`}`), parseInfo(t, `{`+described("A", c.two)+`}`))
		require.Contains(t, string(cat.Class("A", nil).Body()), `"file": [`+c.want)
	}
}
