package redis

import (
	"slices"
	"strings"
)

// definition is one statement of a library at the left margin: `local function f(...)`,
// `local a, b = ...`, or anything else, which has no names.
type definition struct {
	names []string
	text  string
}

// pruned returns the definitions of libraries that a script's body uses, directly or through
// others, in their order. Redis creates every function of a script at each call, so
// those that are never called would cost as much as the others.
//
// A definition can use only what stands before it, as in Lua. A local variable that has the
// name of a definition counts as a use: one too many is kept, never one too few.
func pruned(body string, libraries ...string) string {
	var all []definition
	for _, library := range libraries {
		all = append(all, definitions(library)...)
	}
	keep := make([]bool, len(all))
	used := words(body)
	for i := len(all) - 1; i >= 0; i-- {
		d := all[i]
		keep[i] = len(d.names) == 0 || slices.ContainsFunc(d.names, func(name string) bool { return used[name] })
		if keep[i] {
			for word := range words(d.text) {
				used[word] = true
			}
		}
	}
	var kept strings.Builder
	for i, d := range all {
		if keep[i] {
			kept.WriteString(strings.TrimSuffix(d.text, "\n") + "\n")
		}
	}
	return kept.String()
}

// definitions splits a library at its left margin. Comments there are left out, so no line
// of a long string or comment may begin there.
func definitions(library string) []definition {
	var list []definition
	for line := range strings.Lines(library) {
		switch first := strings.TrimRight(line, "\n"); {
		case first == "" || strings.HasPrefix(first, "--"):
			continue
		case len(list) > 0 && isContinued(first):
			list[len(list)-1].text += line
		default:
			list = append(list, definition{names: defined(first), text: line})
		}
	}
	return list
}

// isContinued reports whether a line belongs to the statement before it.
func isContinued(line string) bool {
	return strings.ContainsAny(line[:1], " \t})]") || line == "end"
}

// defined returns the names that a statement defines by its first line.
func defined(line string) []string {
	rest, isLocal := strings.CutPrefix(line, "local ")
	if !isLocal {
		return nil
	}
	if function, isFunction := strings.CutPrefix(rest, "function "); isFunction {
		name, _, _ := strings.Cut(function, "(")
		return []string{strings.TrimSpace(name)}
	}
	list, _, _ := strings.Cut(rest, "=")
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// words returns the names in a Lua text, without those of fields (x.name) and what stands in
// comments and short strings.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case strings.HasPrefix(text[i:], "--"):
			i = after(text, i, "\n")
		case c == '\'' || c == '"':
			i = afterString(text, i)
		case isNameByte(c):
			begin := i
			for i < len(text) && isNameByte(text[i]) {
				i++
			}
			// a..b joins two strings, a.b is a field.
			isField := begin > 0 && text[begin-1] == '.' && (begin < 2 || text[begin-2] != '.')
			if !isField {
				set[text[begin:i]] = true
			}
		default:
			i++
		}
	}
	return set
}

// after returns where text goes on behind the next mark.
func after(text string, from int, mark string) int {
	if n := strings.Index(text[from:], mark); n >= 0 {
		return from + n + len(mark)
	}
	return len(text)
}

// afterString returns where text goes on behind the short string that begins at from.
func afterString(text string, from int) int {
	for i := from + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[from]:
			return i + 1
		}
	}
	return len(text)
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
