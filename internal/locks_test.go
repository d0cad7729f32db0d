package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// heldBecause begins the comment, beside a Lock or above it, that says why it is right there.
const heldBecause = "// Held: "

// Whoever waits for a mutex waits although its context ends, and stops the clock of testing/synctest. So
// no mutex is held over what may take long, which is what gets a context: use semaphore.Weighted, or say
// after the Lock, behind "Held:", why it is right.
func TestNoMutexIsHeldOverACall(t *testing.T) {
	t.Parallel()
	for _, file := range sources(t) {
		if file.isTest() {
			continue
		}
		for _, found := range heldCalls(t, file.path, file.text) {
			t.Error(found)
		}
	}
}

func TestHeldCalls(t *testing.T) {
	t.Parallel()
	for body, found := range map[string]int{
		"x.mu.Lock(); defer x.mu.Unlock(); x.ask(ctx)":                           1,
		"x.mu.RLock(); err := x.ask(ctx); x.mu.RUnlock()":                        1,
		"x.mu.Lock(); if n { x.mu.Unlock(); x.ask(ctx); return }; x.mu.Unlock()": 0,
		"x.mu.Lock(); if n { x.mu.Unlock(); return }; x.ask(ctx); x.mu.Unlock()": 1,
		"x.mu.Lock(); x.n++; x.mu.Unlock(); x.ask(ctx)":                          0,
		"x.mu.Lock(); defer x.mu.Unlock(); for { if x.ask(r.Context()) { } }":    1,
		"x.mu.Lock(); defer x.mu.Unlock(); x.ask(x.ctx)":                         1,
		"x.mu.Lock(); x.mu.Unlock(); x.ask(context.Background())":                0,
		"x.mu.Lock(); defer x.mu.Unlock(); x.ask(context.Background())":          1,
		"x.mu.Lock(); defer x.mu.Unlock(); go x.ask(ctx)":                        0,
		"x.mu.Lock(); defer x.mu.Unlock(); x.work.Go(func() { x.ask(ctx) })":     0,
		"x.mu.Lock(); defer x.mu.Unlock(); c, stop := context.WithCancel(ctx)":   0,
		"x.mu.Lock() // Held: it is quick.\ndefer x.mu.Unlock()\nx.ask(ctx)":     0,
		"// Held: it is quick.\nx.mu.Lock()\ndefer x.mu.Unlock()\nx.ask(ctx)":    0,
		"x.mu.Lock(); defer x.mu.Unlock(); func() { x.ask(ctx) }()":              1,
		"x.mu.Lock(); return x.mu.Unlock":                                        1,
		"// Held: it is quick.\nreturn x.mu.Unlock":                              0,
		"select { case <-c: x.mu.Lock(); defer x.mu.Unlock(); x.ask(ctx) }":      1,
		"switch { case n: x.mu.Lock(); x.mu.Unlock() }; x.ask(ctx)":              0,
	} {
		require.Len(t, heldCalls(t, "x.go", []byte("package x\nfunc (x *x) f(ctx context.Context) {\n"+body+"\n}")), found, body)
	}
}

// heldCalls lists the calls with a context that a file makes with a mutex held that the same function has locked.
func heldCalls(t *testing.T, path string, text []byte) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	l := &locks{files: files, excused: map[int]bool{}}
	for _, group := range file.Comments {
		if strings.HasPrefix(group.List[0].Text, heldBecause) {
			line := files.Position(group.End()).Line
			l.excused[line], l.excused[line+1] = true, true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			l.read(n.Body, nil)
		case *ast.FuncLit:
			l.read(n.Body, nil)
		case *ast.ReturnStmt:
			l.handOut(n)
		}
		return true
	})
	slices.Sort(l.found)
	return slices.Compact(l.found)
}

// locks looks for calls with a mutex held.
type locks struct {
	files   *token.FileSet
	excused map[int]bool // by line
	found   []string
}

// read goes through a part of a function with what is locked there.
func (l *locks) read(part ast.Node, held []string) {
	var list []ast.Stmt
	switch part := part.(type) {
	case *ast.BlockStmt:
		if part == nil {
			return
		}
		list = part.List
	case *ast.CaseClause:
		list = part.Body
	case *ast.CommClause:
		list = part.Body
	}
	held = slices.Clone(held)
	for _, stmt := range list {
		switch mutex, method := mutexCall(stmt); method {
		case "":
			l.look(stmt, held)
		case "Lock", "RLock":
			if !l.excused[l.files.Position(stmt.Pos()).Line] {
				held = append(held, mutex)
			}
		default:
			held = slices.DeleteFunc(held, func(other string) bool { return other == mutex })
		}
	}
}

// handOut notes a mutex that is left to the caller to unlock: nobody sees here what is called meanwhile.
func (l *locks) handOut(stmt *ast.ReturnStmt) {
	at := l.files.Position(stmt.Pos())
	for _, value := range stmt.Results {
		if f, ok := value.(*ast.SelectorExpr); ok && (f.Sel.Name == "Unlock" || f.Sel.Name == "RUnlock") && !l.excused[at.Line] {
			l.found = append(l.found, fmt.Sprintf("%s: %s is left to the caller", at, chain(f)))
		}
	}
}

// look looks at a statement, and at what is within it.
func (l *locks) look(in ast.Node, held []string) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			l.read(n, held)
			return false
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.FuncLit); ok { // it is called here
				l.read(f.Body, held)
			}
			if at := l.files.Position(n.Pos()); len(held) > 0 && slices.ContainsFunc(n.Args, isContext) && !strings.HasPrefix(chain(n.Fun), "context.") {
				l.found = append(l.found, fmt.Sprintf("%s: %s is called with %s locked", at, chain(n.Fun), strings.Join(held, ", ")))
			}
		}
		return true
	})
}

// mutexCall reads a statement that locks or unlocks a mutex.
func mutexCall(stmt ast.Stmt) (mutex, method string) {
	expr, ok := stmt.(*ast.ExprStmt)
	if !ok {
		return "", ""
	}
	call, ok := expr.X.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", ""
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Lock", "RLock", "Unlock", "RUnlock"}, f.Sel.Name) {
		return "", ""
	}
	return chain(f.X), f.Sel.Name
}

// isContext reports whether an argument looks like a context.
func isContext(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		name := chain(e.Fun)
		return strings.HasPrefix(name, "context.") || strings.HasSuffix(name, ".Context")
	default:
		name := chain(e)
		return name == "ctx" || strings.HasSuffix(name, ".ctx")
	}
}

// chain is a name with what it is in.
func chain(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return chain(e.X) + "." + e.Sel.Name
	}
	return "?"
}
