package caddymodule

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// TestReference holds the tables of docs/caddyfile.md against the fields that they are made of.
// With -update it writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	const path = "../docs/caddyfile.md"
	content := must.Get(os.ReadFile(path))(t)
	page := string(content)
	types := structs(t)
	for name, table := range map[string]string{
		"fleet": table(types, "App", ""), "site": table(types, "Handler", ""), "last": lastTable(),
	} {
		start, end := "<!-- words: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(page, start)
		require.True(t, ok, name)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, name)
		page = before + start + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
		return
	}
	require.Equal(t, page, string(content), "go test ./caddymodule -run TestReference -update writes the tables")
}

// source is a struct of this package, and the file that it is in.
type source struct {
	*ast.StructType
	file *ast.File
}

// structs are the structs of this package by name.
func structs(t *testing.T) map[string]source {
	t.Helper()
	found := map[string]source{}
	paths := must.Get(filepath.Glob("*.go"))(t)
	for _, path := range paths {
		file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))(t)
		for node := range ast.Preorder(file) {
			if spec, ok := node.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = source{s, file}
				}
			}
		}
	}
	return found
}

// header begins a table.
const header = "\n| word | meaning | default |\n| --- | --- | --- |\n"

// table describes the words of a struct. within is the word of a block that it is.
func table(types map[string]source, name, within string) string {
	var text strings.Builder
	from := types[name].Pos()
	if within == "" && !slices.ContainsFunc(types[name].file.Comments, func(c *ast.CommentGroup) bool { return strings.HasPrefix(c.Text(), "# ") }) {
		text.WriteString(header)
	}
	for _, field := range types[name].Fields.List {
		for _, comment := range types[name].file.Comments {
			if title, ok := strings.CutPrefix(comment.Text(), "# "); ok && comment.Pos() > from && comment.Pos() < field.Pos() {
				fmt.Fprintf(&text, "\n### %s\n%s", strings.TrimSpace(title), header)
			}
		}
		from = field.Pos()
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		syntax := reflect.StructTag(tag).Get("word")
		if _, last := reflect.StructTag(tag).Lookup("now"); syntax == "" || last {
			continue
		}
		if pointer, ok := field.Type.(*ast.StarExpr); ok && !strings.Contains(syntax, "{") {
			if block, ok := pointer.X.(*ast.Ident); ok {
				text.WriteString(table(types, block.Name, syntax))
				continue
			}
		}
		if within != "" {
			syntax = within + " { " + syntax + " }"
		}
		says, fallback, _ := strings.Cut(strings.Join(strings.Fields(field.Doc.Text()), " "), "Default: ")
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", strings.ReplaceAll(syntax, "|", `\|`), linked(says), linked(fallback))
	}
	return text.String()
}

// lastTable is the table of the words of the last version.
func lastTable() string {
	text := "\n| word | now |\n| --- | --- |\n"
	for _, config := range []any{LastWords{}, LastLimits{}, Handler{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(config)) {
			now, last := f.Tag.Lookup("now")
			if !last {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("word"), " ")
			if _, limit := config.(LastLimits); limit {
				name = "tenant_limits { " + name + " }"
			}
			if now = "`" + now + "`"; now == "``" {
				now = "no longer needed"
			}
			text += fmt.Sprintf("| `%s` | %s |\n", name, now)
		}
	}
	return text
}

// links finds the pages that a comment names.
var links = regexp.MustCompile(`docs/([a-z0-9-]+\.md)(#[a-z0-9-]+)?`)

// linked is the text of a comment as a cell of a table has it.
func linked(text string) string {
	return strings.TrimSuffix(strings.TrimSpace(links.ReplaceAllString(text, "[$1]($1$2)")), ".")
}

// TestSettingsReachTheHub sees that no field of a word is lost on its way to the hub because the
// hub's field has another name.
func TestSettingsReachTheHub(t *testing.T) {
	t.Parallel()
	named := map[string]string{
		"History": "HistoryEntries", "Secret": "Secrets", "Reserve": "Reserved", "Order": "FIFO", "A1111API": "NoA1111API", "Callbacks": "CallbackHosts", "Gossip": "Join", "Memory": "BodyMemory",
		"Split": "NoSplit",
	}
	fields := map[string]bool{}
	app := new(App)
	for _, of := range []any{app.hubSettings(), app.hubIdentity()} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			fields[f.Name] = true
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(*app)) {
		if f.Tag.Get("word") != "" {
			name := f.Name
			if other, ok := named[name]; ok {
				name = other
			}
			require.Contains(t, slices.Collect(maps.Keys(fields)), name)
		}
	}
}
