// Package internal_test checks the rules that hold the whole repository
// together: who may import whom, how long a file may be, and that no test
// sleeps. They are cheap to break by accident and dear to repair later.
package internal_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/comfyhub/comfyhub"

// looksAtURL finds code that reads the target of a request by itself. The hub
// and an instance must read it alike, so package aiohttp does it for all.
var looksAtURL = regexp.MustCompile(`(?i)\.URL\.(Path|RawPath|RawQuery|Opaque|Query\(|EscapedPath|RequestURI|String\()|\.RequestURI|\.(Post)?FormValue\(|\.ParseForm\(|\.PathValue\(`)

// urlReaders are the files that may, and why.
var urlReaders = map[string]string{
	"internal/api/path.go":        "turns a request's URL into the canonical form, once",
	"internal/api/lengths.go":     "measures the target, and reads nothing of it",
	"internal/comfyui/forward.go": "takes the raw query, and drops what is secret",
	"internal/comfyui/proxy.go":   "the agent's, which changes nothing",
}

// Every part of the dialect reads paths and queries through package aiohttp.
func TestOneReadingOfAURL(t *testing.T) {
	t.Parallel()
	met := 0
	for _, s := range sources(t) {
		if s.isTest() || !slices.Contains([]string{"internal/api", "internal/api/comfy", "internal/api/comfyv2", "internal/api/ops", "internal/api/plain", "internal/api/pull", "internal/api/sdapi", "internal/hub", "internal/members", "internal/operator", "internal/upstream", "internal/files", "internal/stream", "internal/comfyui", "internal/dispatch", "internal/run", "internal/instance"}, s.folder()) {
			continue
		}
		text := bytes.ReplaceAll(bytes.ToLower(s.text), []byte("parsequery(r.url.rawquery)"), nil)
		found := looksAtURL.Find(text)
		if urlReaders[s.path] != "" {
			met++
			continue
		}
		require.Empty(t, string(found), "%s: use package aiohttp", s.path)
	}
	require.Equal(t, len(urlReaders), met)
}

// testHelpers may be imported by every package's tests, besides what the
// package itself may import.
var testHelpers = []string{
	"e2e/storedtest", "internal/api/apitest", "internal/overflow/overflowtest", "internal/redis/redistest", "internal/sim", "internal/sim/replay", "internal/sim/simsd", "internal/sim/simtest", "internal/aiohttp/aiohttptest", "internal/logs/logtest", "internal/keyring/keyringtest", "internal/testing/freeport", "system/network/loopback", "internal/testing/leaktest", "internal/testing/beside", "internal/testing/must", "internal/testing/programs", "internal/testing/programs/programstest", "botbridge/internal/testing/fakebot", "botbridge/internal/testing/fakediscord", "botbridge/internal/testing/fakellm", "botbridge/internal/testing/stage",
}

// testsMayImport is what tests may import besides, and nothing else of the
// package: those of the hub drive it over HTTP.
var testsMayImport = map[string][]string{
	"internal/api/page": {"internal/aiohttp"}, "internal/hub": {"internal/a1111", "internal/api", "internal/egress", "internal/pyjson", "internal/refusal", "internal/rules"}, "internal/shell": {"internal/api", "internal/config", "internal/hub"},
	"internal/api/mount": {"internal/aiohttp", "internal/config"}, "internal/api/comfy": {"internal/api/mount", "internal/hub"},
	"internal/facade": {"internal/comfyui", "internal/job"}, "internal/worker": {"internal/comfyui"}, "internal/overflow": {"internal/comfyui"},
	"internal/a1111": {"internal/comfyui", "internal/job"}, "comfysim": {"internal/comfyui"},
	"e2e": {"internal/api/mount", "internal/config", "internal/hub"}, // for the list of all routes
}

// owners says which folders may know a third-party library, their tests apart:
// the others are to be testable without it, and it is to be replaceable in one
// place.
var owners = map[string][]string{
	"github.com/caddyserver/caddy/":       {"caddymodule"},
	"github.com/redis/go-redis/":          {"internal/redis", "internal/queue"},
	"github.com/tidwall/btree":            {"internal/redis/engine"},
	"github.com/yuin/gopher-lua":          {"internal/redis/engine"},
	"github.com/hashicorp/memberlist":     {"internal/gossip"},
	"github.com/go-telegram/bot":          {"botbridge/internal/telegram"},
	"github.com/disgoorg/":                {"botbridge/internal/discord"},
	"go.yaml.in/yaml/":                    {"botbridge/internal/config", "botbridge/internal/locale"},
	"gocloud.dev/":                        {"internal/files", "internal/files/s3"},
	"github.com/cenkalti/backoff/":        {"internal/retry"},
	"github.com/zeebo/blake3":             {"internal/files"},
	"code.dny.dev/ssrf":                   {"internal/egress"},
	"github.com/prometheus/client_golang": {"caddymodule", "internal/metrics", "botbridge"},
	"go.opentelemetry.io/":                {"internal/traces"},
	"google.golang.org/":                  {"internal/keda"},
	"github.com/aws/":                     {"internal/scale/ec2"},
}

// source is one Go file of the repository.
type source struct {
	path string // from the root, with slashes
	text []byte
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }

func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		found = append(found, source{name, text})
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// Imports go one way. And the tables are true: an import that is allowed and that nobody needs is
// one that somebody adds later without a thought.
func TestImports(t *testing.T) {
	t.Parallel()
	type edge struct{ from, to string }
	used := map[edge]bool{}
	for _, file := range sources(t) {
		from := group(file.folder())
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file.path, file.text, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if broken := broken(file, imported); broken != "" {
				t.Errorf("%s: import of %s: %s", files.Position(spec.Pos()), imported, broken)
			}
			if inside, ours := strings.CutPrefix(imported, module+"/"); ours {
				for _, allowed := range mayImport[from] {
					if within(inside, allowed) {
						used[edge{from, allowed}] = true
					}
				}
				continue
			}
			for library, folders := range owners {
				for _, folder := range folders {
					if strings.HasPrefix(imported, library) && within(file.folder(), folder) {
						used[edge{folder, library}] = true
					}
				}
			}
		}
	}
	for _, table := range []struct {
		name  string
		edges map[string][]string
	}{{"mayImport", mayImport}, {"owners", turned(owners)}} {
		for from, all := range table.edges {
			if _, err := os.Stat(filepath.Join("..", from)); err != nil {
				t.Errorf("%s names a folder that is not there: %s", table.name, from)
			}
			for _, to := range all {
				if !used[edge{from, to}] {
					t.Errorf("%s allows %s to import %s, which it does not", table.name, from, to)
				}
			}
		}
	}
}

// turned is a table of folders by library as one of libraries by folder.
func turned(table map[string][]string) map[string][]string {
	out := map[string][]string{}
	for library, folders := range table {
		for _, folder := range folders {
			out[folder] = append(out[folder], library)
		}
	}
	return out
}

// broken tells the rule that an import breaks, or nothing.
func broken(file source, imported string) string {
	folder := file.folder()
	if inside, ours := strings.CutPrefix(imported, module+"/"); ours {
		allowed, known := mayImport[group(folder)]
		switch {
		case within(inside, folder) || within(folder, inside) && file.isTest():
			return ""
		case file.isTest() && slices.Contains(testHelpers, inside):
			return ""
		case file.isTest() && slices.ContainsFunc(testsMayImport[folder], func(a string) bool { return within(inside, a) }):
			return ""
		case strings.HasSuffix(inside, "test") && !strings.HasSuffix(folder, "test") && folder != "system":
			return "a test helper, not for the product"
		case !known && !file.isTest():
			return folder + " is not in the table mayImport"
		case known && !slices.ContainsFunc(allowed, func(a string) bool { return within(inside, a) }):
			return group(folder) + " may import only: " + strings.Join(allowed, ", ")
		}
		return ""
	}
	if file.isTest() {
		return ""
	}
	for library, folders := range owners {
		if strings.HasPrefix(imported, library) && !slices.ContainsFunc(folders, func(f string) bool { return within(folder, f) }) {
			return "only these know that library: " + strings.Join(folders, ", ")
		}
	}
	if folder == "internal/hub" && imported == "net/http" {
		return "the core knows no requests: the dialects translate them"
	}
	if folder == "internal/job" && strings.Contains(imported, ".") {
		return "internal/job uses the standard library only"
	}
	return ""
}

// group is the entry of mayImport for a folder: its own, or that of the
// nearest folder above.
func group(folder string) string {
	for folder != "." {
		if _, known := mayImport[folder]; known {
			return folder
		}
		folder = path.Dir(folder)
	}
	return "."
}

// within reports whether a folder is another or lies below it.
func within(folder, above string) bool {
	return folder == above || strings.HasPrefix(folder, above+"/")
}

// A file that has grown past this holds more than one thing.
func TestFileLength(t *testing.T) {
	t.Parallel()
	const limit = 400
	for _, file := range sources(t) {
		if lines := bytes.Count(file.text, []byte("\n")); lines > limit {
			t.Errorf("%s has %d lines, more than %d: give one of its nouns a file of its own", file.path, lines, limit)
		}
	}
}

// maxMethods is how many methods a type has before its comment must say why it
// is still one thing.
const maxMethods = 20

// manyMethods begins the paragraph of a type's comment that says why.
const manyMethods = "Many methods: "

// A type that has grown past the limit holds more than one thing, or says what
// the one thing is. One that has shrunk makes no excuses any more.
func TestManyMethodsHaveAReason(t *testing.T) {
	t.Parallel()
	methods, excused := map[string]int{}, map[string]bool{}
	for _, s := range sources(t) {
		if !s.isTest() {
			countMethods(t, s, methods, excused)
		}
	}
	require.NotEmpty(t, methods)
	for name, count := range methods {
		switch {
		case count > maxMethods && !excused[name]:
			t.Errorf("%s has %d methods, more than %d: divide it, or add a paragraph %q to its comment", name, count, maxMethods, manyMethods)
		case count <= maxMethods && excused[name]:
			t.Errorf("%s has no more than %d methods: its comment need not say %q", name, maxMethods, manyMethods)
		}
		delete(excused, name)
	}
	require.Empty(t, excused, "types without a method")
}

// countMethods adds the methods of a file by their type, and the types whose
// comment gives a reason for many.
func countMethods(t *testing.T, s source, methods map[string]int, excused map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods[s.folder()+"."+receiverType(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				spec, ok := spec.(*ast.TypeSpec)
				if ok && (hasReason(d.Doc) || hasReason(spec.Doc)) {
					excused[s.folder()+"."+spec.Name.Name] = true
				}
			}
		}
	}
}

func hasReason(doc *ast.CommentGroup) bool {
	text := "\n\n" + doc.Text()
	_, reason, ok := strings.Cut(text, "\n\n"+manyMethods)
	return ok && strings.TrimSpace(reason) != ""
}

// receiverType is the name of the type that a method belongs to.
func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.ParenExpr:
		return receiverType(e.X)
	}
	return ""
}

// bareGoroutine starts a goroutine in which a panic ends the process.
var bareGoroutine = regexp.MustCompile(`\bgo func\(|\.Go\(func\(`)

// A panic in a goroutine that works for one job, client or instance ends no more
// than that: packages with such goroutines start them by package panics. Those
// counted here are loops of the hub itself, or contain their panics.
func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	bare := map[string]int{
		"internal/dispatch/dispatcher.go": 7, "internal/instance/link.go": 1,
		"internal/files/collector.go": 1, "internal/files/opened.go": 1, "internal/files/transfer.go": 2,
	}
	for _, s := range sources(t) {
		if s.isTest() || s.folder() != "internal/dispatch" && s.folder() != "internal/run" && s.folder() != "internal/instance" && s.folder() != "internal/files" {
			continue
		}
		require.Len(t, bareGoroutine.FindAll(s.text, -1), bare[s.path], "%s: use package panics", s.path)
	}
}
