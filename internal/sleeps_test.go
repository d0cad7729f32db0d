package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bubbles run what they are given in a bubble of testing/synctest.
var bubbles = [...]string{"synctest.Test", "loopback.Test", "beside.Bubble"}

// pause is a place where a test does nothing for some time.
type pause struct {
	at token.Position
	in string // the function, "" in a bubble
}

// pauses looks for those of a package's tests.
type pauses struct {
	files *token.FileSet
	found []pause
	// bubbles are the package's own functions that run what they are given in a bubble.
	bubbles map[string]bool
	// used are the functions that mention a function outside of a bubble, by its name.
	used map[string][]string
	// bubbled are the functions that something in a bubble mentions.
	bubbled map[string]bool
}

// A sleep in a test is too short on a busy machine and too long on any other. Inside a
// bubble of testing/synctest it takes no time and is exact: there it may be, and in a
// function of the tests that is used in bubbles only.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	packages := map[string][]*ast.FuncDecl{}
	files := token.NewFileSet()
	for _, file := range sources(t) {
		if !file.isTest() {
			continue
		}
		parsed, err := parser.ParseFile(files, path.Base(file.path), file.text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				packages[file.folder()] = append(packages[file.folder()], f)
			}
		}
	}
	for folder, functions := range packages {
		p := &pauses{files: files, bubbles: map[string]bool{}, used: map[string][]string{}, bubbled: map[string]bool{}}
		for _, f := range functions {
			if takesAFunction(f) && calls(f.Body, p.isBubble) {
				p.bubbles[f.Name.Name] = true
			}
		}
		for _, f := range functions {
			switch {
			case p.bubbles[f.Name.Name], strings.HasPrefix(f.Name.Name, "Benchmark"):
			case calls(f.Body, waits):
				p.read("", f.Body)
			default:
				p.read(f.Name.Name, f.Body)
			}
		}
		for _, s := range p.found {
			if s.in != "" && !p.inBubblesOnly(s.in, map[string]bool{}) {
				t.Errorf("%s/%s: %s sleeps in real time: poll with a deadline, or use testing/synctest", folder, s.at, s.in)
			}
		}
	}
}

// read looks through a part of a function, which is "" in a bubble.
func (p *pauses) read(function string, part ast.Node) {
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if function != "" && calls(n.Body, waits) {
				p.read("", n.Body)
				return false
			}
		case *ast.CallExpr:
			switch name := called(n.Fun); {
			case p.isBubble(name):
				for _, argument := range n.Args {
					p.read("", argument)
				}
				return false
			case name == "time.Sleep":
				p.found = append(p.found, pause{p.files.Position(n.Pos()), function})
			}
		case *ast.CommClause: // a deadline is no sleep
			for _, rest := range n.Body {
				p.read(function, rest)
			}
			return false
		case *ast.ExprStmt:
			if wait, ok := n.X.(*ast.UnaryExpr); ok {
				if call, ok := wait.X.(*ast.CallExpr); ok && called(call.Fun) == "time.After" {
					p.found = append(p.found, pause{p.files.Position(n.Pos()), function})
				}
			}
		case *ast.Ident:
			if function == "" {
				p.bubbled[n.Name] = true
			} else if n.Name != function {
				p.used[n.Name] = append(p.used[n.Name], function)
			}
		}
		return true
	})
}

func (p *pauses) isBubble(name string) bool {
	return p.bubbles[name] || slices.Contains(bubbles[:], name)
}

// waits reports whether a function panics outside of a bubble.
func waits(name string) bool { return name == "synctest.Wait" }

// calls reports whether there is a call of a function with such a name.
func calls(in ast.Node, is func(name string) bool) (found bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && is(called(call.Fun))
		return !found
	})
	return found
}

// takesAFunction reports whether a parameter of a function is a function.
func takesAFunction(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(parameter *ast.Field) bool {
		_, ok := parameter.Type.(*ast.FuncType)
		return ok
	})
}

// called is a function as it is called, with its package or receiver.
func called(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if in, ok := f.X.(*ast.Ident); ok {
			return in.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// inBubblesOnly reports whether a function is used, and nowhere but in bubbles.
func (p *pauses) inBubblesOnly(function string, asked map[string]bool) bool {
	if asked[function] {
		return true
	}
	asked[function] = true
	for _, by := range p.used[function] {
		if !p.inBubblesOnly(by, asked) {
			return false
		}
	}
	return p.bubbled[function] || len(p.used[function]) > 0
}
