package rules

import (
	"path"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/job"
)

// permits reports whether something may be used that has these names.
func permits(names, deny, allow []string) bool {
	fits := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return matches(pattern, name) })
		})
	}
	return !fits(deny) && (len(allow) == 0 || fits(allow))
}

// permitsFile reports whether a model may be used by a name that stands for one of some files,
// or for none that is known.
func permitsFile(r Rules, name string, files []string) bool {
	if deniesFile(r.DenyModels, append([]string{name}, files...)...) {
		return false
	}
	if len(r.AllowModels) == 0 {
		return true
	}
	if len(files) == 0 {
		files = []string{name}
	}
	// All of them: which one the server takes is not known.
	return !slices.ContainsFunc(files, func(file string) bool { return !permits(namesOf(file), nil, forPatterns(r.AllowModels, file)) })
}

// deniesFile reports whether one of some files of models is denied.
func deniesFile(deny []string, files ...string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		names := namesOf(file)
		if other := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(file), unhashed(file))); other != "" { // the hash, or a LoRA's other name
			names = append(names, strings.ToLower(strings.Trim(other, "[]")))
		}
		for _, name := range names { // a folder anywhere on the way
			for at := strings.IndexByte(name, '/'); at >= 0; at = nextSlash(name, at) {
				names = append(names, name[at+1:])
			}
		}
		return !permits(names, forPatterns(deny, file), nil)
	})
}

func nextSlash(text string, at int) int {
	if next := strings.IndexByte(text[at+1:], '/'); next >= 0 {
		return at + 1 + next
	}
	return -1
}

// namesOf are the names of a file that a pattern may mean: the path and its last part, each with
// and without the extension and A1111's hash.
func namesOf(file string) []string {
	var names []string
	for _, name := range []string{file, unhashed(file)} {
		whole := plain(name)
		for _, one := range []string{whole, path.Base(whole)} {
			names = append(names, one)
			if job.NamesModel(one) {
				names = append(names, strings.TrimSuffix(one, path.Ext(one)))
			}
		}
	}
	// A1111 has a name for each file with a "_" for each "/".
	names = append(names, strings.ReplaceAll(names[0], "/", "_"))
	slices.Sort(names)
	return slices.Compact(names)
}

// unhashed is a name without the hash behind it.
func unhashed(name string) string {
	name = strings.TrimSpace(name)
	if at := strings.LastIndex(name, " ["); at > 0 && strings.HasSuffix(name, "]") {
		return name[:at]
	}
	return name
}

// plain is a path in one form: small letters, slashes, no dots.
func plain(name string) string {
	return path.Clean(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), `\`, "/")))
}

// forPatterns are patterns as they are compared with the names of a file: one with an extension
// also means a name that has none, as A1111 takes it.
func forPatterns(patterns []string, file string) []string {
	all := make([]string, 0, 2*len(patterns))
	bare := !job.NamesModel(unhashed(file))
	for _, pattern := range patterns {
		pattern = strings.ToLower(strings.ReplaceAll(pattern, `\`, "/"))
		all = append(all, pattern)
		if bare && job.NamesModel(pattern) {
			pattern = strings.TrimSuffix(pattern, path.Ext(pattern))
			all = append(all, pattern)
		}
		if bare && strings.Contains(pattern, "/") {
			all = append(all, strings.ReplaceAll(pattern, "/", "_"))
		}
	}
	return all
}

// filesOf are those of the titles that a name stands for at an A1111 server: not the other
// forms of the same names, of which lists consist as well.
func filesOf(name string, titles []string) []string {
	flat := strings.NewReplacer("/", "_", `\`, "_")
	var found []string
	for _, title := range titles {
		if !isHash(name) && !strings.Contains(flat.Replace(title), flat.Replace(name)) {
			continue // most of them, without making their forms
		}
		if slices.Contains(a1111.Forms(title), name) || isHash(name) && hashed(title, name) {
			found = append(found, title)
		}
	}
	var files []string
	for _, title := range found {
		if !slices.ContainsFunc(found, func(other string) bool { return other != title && slices.Contains(a1111.Forms(other), title) }) {
			files = append(files, title)
		}
	}
	return files
}

// isHash reports whether a name may be the hash of a file, of which A1111 knows three lengths.
func isHash(name string) bool {
	return len(name) >= 8 && strings.Trim(name, "0123456789abcdefABCDEF") == ""
}

// hashed reports whether a title has the beginning of a hash.
func hashed(title, hash string) bool {
	at := strings.LastIndex(title, " [")
	return at > 0 && strings.HasSuffix(title, "]") && isHash(title[at+2:len(title)-1]) && strings.HasPrefix(hash, title[at+2:len(title)-1])
}

// matches reports whether a text has the form of a pattern. It takes time in proportion to
// both lengths at most, whatever a client sends.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) || len(text) < len(first)+len(last) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}
