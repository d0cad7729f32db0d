package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		if s.isTest() || s.folder() != "internal/dispatch" && s.folder() != "internal/instance" && s.folder() != "internal/files" {
			continue
		}
		require.Len(t, bareGoroutine.FindAll(s.text, -1), bare[s.path], "%s: use package panics", s.path)
	}
}
