package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// known are the texts that the page translates: English with {x} for anything, and Russian.
func known(t *testing.T) (pairs [][2]string) {
	t.Helper()
	script, err := static.ReadFile("static/reasons.js")
	require.NoError(t, err)
	for _, pair := range regexp.MustCompile(`(?m)^    \[(?:'([^']+)'|"([^"]+)"), '([^']+)'\],$`).FindAllStringSubmatch(string(script), -1) {
		pairs = append(pairs, [2]string{pair[1] + pair[2], pair[3]})
	}
	require.Greater(t, len(pairs), 120)
	return pairs
}

// What the page translates is what the hub says: a text that changes there must change here.
func TestReasonsAreThoseOfTheHub(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, folder := range []string{"agent", "comfyui", "dispatch", "fleet", "hints", "instance", "metrics", "overflow", "overflow/endpoints", "refusal", "run", "scale", "schedule", "tunnel", "view", "worker"} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			said.Write(text)
		}
	}
	for _, pair := range known(t) {
		english := pair[0]
		for part := range strings.SplitSeq(english, "{x}") {
			part = strings.TrimPrefix(strings.Trim(part, ": "), "it ")
			part = strings.TrimPrefix(part, "went over a socket that was lost") // a constant of its own
			require.True(t, len(part) <= 3 || strings.Contains(said.String(), part), "%s: nobody says %q", english, part)
		}
		require.Equal(t, strings.Count(english, "{x}"), strings.Count(pair[1], "{x}"), english)
	}
}

// A hint that somebody has dismissed is brought back by its name, in both languages.
func TestEveryHintHasAName(t *testing.T) {
	t.Parallel()
	words, err := static.ReadFile("static/words.js")
	require.NoError(t, err)
	source, err := os.ReadFile("../../hints/hints.go")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z_]+)"$`).FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(names), 5)
	for _, name := range names {
		require.Equal(t, 2, strings.Count(string(words), "'hint."+name[1]+"': '"), name[1])
	}
}

// shown are the folders in which the hub says why: all that is returned, or is the value of one of
// these names, and all that is given to one of these functions.
var (
	shown     = []string{"dispatch", "fleet", "overflow/endpoints", "refusal", "run", "schedule", "view", "worker"}
	named     = []string{"cause", "Message", "message", "Noted", "reason", "Reason", "why", "Why"}
	takesText = []string{"markUnhealthy", "SetBroken", "undivide"}
	notShown  = []string{
		"closing a connection", "its GPU's memory", // no reasons
		"Runs again: {x}, {x}", "{x} failed: {x}", // in ComfyUI's own page
	}
)

// A reason that the page can show has its Russian.
func TestEveryReasonHasItsRussian(t *testing.T) {
	t.Parallel()
	var patterns []*regexp.Regexp
	for _, pair := range known(t) {
		parts := strings.Split(strings.TrimPrefix(pair[0], "it "), "{x}")
		for n := range parts {
			parts[n] = regexp.QuoteMeta(parts[n])
		}
		patterns = append(patterns, regexp.MustCompile(`(?s)^(?:it )?`+strings.Join(parts, "(.*?)")+"$"))
	}
	for _, r := range reasons(t) {
		text := strings.ReplaceAll(r.text, "{x}", "7")
		if words := letters.FindAllString(strings.ReplaceAll(r.text, "{x}", " "), -1); len(words) < 2 || !strings.Contains(r.text, " ") || slices.Contains(notShown, r.text) {
			continue
		}
		if !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(text) }) {
			t.Errorf("%s: %q: reasons.js has no Russian for it", r.at, r.text)
		}
	}
}

// reason is a text that the hub may give as one, with {x} for what is known only then.
type reason struct {
	text string
	at   token.Position
}

// reasons finds those in the source.
func reasons(t *testing.T) (list []reason) {
	t.Helper()
	for _, folder := range shown {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		s := source{files: token.NewFileSet(), named: named, constants: map[string]string{}}
		if folder == "refusal" {
			s.named = []string{"Noted"} // the rest is for whoever has asked, in ComfyUI's own page
		}
		var parsed []*ast.File
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(s.files, file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			parsed = append(parsed, f)
			s.note(f)
		}
		for _, f := range parsed {
			ast.Inspect(f, s.look)
		}
		list = append(list, s.found...)
	}
	require.Greater(t, len(list), 80)
	return list
}

// source is the source of a package.
type source struct {
	files     *token.FileSet
	named     []string
	constants map[string]string
	found     []reason
}

// note learns the constants of a file.
func (s *source) note(f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for n, value := range v.Values {
				if text, ok := s.text(value); ok {
					s.constants[v.Names[n].Name] = text
				}
			}
		}
	}
}

func (s *source) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			s.take(e)
		}
	case *ast.KeyValueExpr:
		if s.isNamed(n.Key) {
			s.take(n.Value)
		}
	case *ast.AssignStmt:
		for at, e := range n.Lhs {
			if s.isNamed(e) && len(n.Rhs) == len(n.Lhs) {
				s.take(n.Rhs[at])
			}
		}
	case *ast.CallExpr:
		if slices.Contains(takesText, nameOf(n.Fun)) {
			for _, e := range n.Args {
				s.take(e)
			}
		}
	}
	return true
}

// take adds an expression if it is a text.
func (s *source) take(e ast.Expr) {
	if text, ok := s.text(e); ok {
		s.found = append(s.found, reason{text, s.files.Position(e.Pos())})
	}
}

// letters are words, where there are others than signs between what is known only then.
var letters = regexp.MustCompile(`[A-Za-z]{2,}`)

var verbs = regexp.MustCompile(`%[-+#0-9.]*[a-z]`)

// text is what an expression says, as far as that is in the source.
func (s *source) text(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.Ident:
		text, ok = s.constants[e.Name]
		return text, ok
	case *ast.BinaryExpr:
		left, isText := s.text(e.X)
		right, too := s.text(e.Y)
		if !isText {
			left = "{x}"
		}
		if !too {
			right = "{x}"
		}
		return left + right, e.Op == token.ADD && (isText || too)
	case *ast.CallExpr:
		if name := nameOf(e.Fun); name == "Sprintf" || name == "TrimSuffix" {
			text, ok = s.text(e.Args[0])
			return verbs.ReplaceAllString(text, "{x}"), ok
		}
	}
	return "", false
}

func (s *source) isNamed(e ast.Expr) bool { return slices.Contains(s.named, nameOf(e)) }

// nameOf is the name of a variable, field or function.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
