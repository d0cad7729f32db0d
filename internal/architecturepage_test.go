package internal_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

var (
	pageLink = regexp.MustCompile("\\[`?([^\\]`]*)`?\\]\\(([^)#]+)[^)]*\\)")
	lifeStep = regexp.MustCompile("\\| \\[`([^`]+)`\\]\\([^)]*\\) `(\\w+)` \\|")
	codePath = regexp.MustCompile("`((?:[a-z]\\w*/)+[\\w.]+)`")
)

// docs/architecture.md is what somebody new reads first. Everything that it names
// is there, and it names every package once.
func TestArchitecturePage(t *testing.T) {
	t.Parallel()
	const page = "docs/architecture.md"
	data := must.Get(os.ReadFile(filepath.Join("..", page)))(t)
	text := string(data)

	links := map[string]int{}
	for _, link := range pageLink.FindAllStringSubmatch(text, -1) {
		target := path.Join("docs", link[2])
		if strings.Contains(link[1], "/") {
			require.Equal(t, target, link[1], "a link leads to what it is called")
		}
		_, err := os.Stat(filepath.Join("..", target))
		require.NoError(t, err, "%s links to what is not there", page)
		links[target]++
	}
	require.Greater(t, len(links), 50, "the links are found")
	for _, named := range codePath.FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(filepath.Join("..", named[1]))
		require.NoError(t, err, "%s names what is not there", page)
	}

	// A step of the life of a job names the function to begin with.
	steps, lines := lifeStep.FindAllStringSubmatch(text, -1), 0
	require.Len(t, steps, 5)
	for _, step := range steps {
		source := must.Get(os.ReadFile(filepath.Join("..", step[1])))(t)
		require.Regexp(t, `(?m)^func (\([^)]*\) )?`+step[2]+`\(`, string(source), step[1])
		lines += strings.Count(string(source), "\n")
	}
	require.Less(t, lines, 1200, "the life of a job can be read at one go")

	folders := map[string]bool{}
	for _, file := range sources(t) {
		folders[file.folder()] = true
	}
	for folder := range folders {
		require.Equal(t, 1, links[folder], "%s names each package once: %s", page, folder)
	}
	for _, from := range []string{"README.md", "CONTRIBUTING.md"} {
		data := must.Get(os.ReadFile(filepath.Join("..", from)))(t)
		require.Contains(t, string(data), "("+page+")", "%s leads to it", from)
	}

	// The packages of the picture are some, and its arrows are imports.
	arrows := 0
	_, picture, _ := strings.Cut(text, "```mermaid")
	picture, _, _ = strings.Cut(picture, "```")
	for line := range strings.Lines(picture) {
		sides := strings.Split(regexp.MustCompile(`\[[^\]]*\]+|\(\[.*?\]\)|-- ".*?" `).ReplaceAllString(strings.TrimSpace(line), ""), "-->")
		for n := range sides[:len(sides)-1] {
			for _, from := range nodes(sides[n]) {
				for _, to := range nodes(sides[n+1]) {
					require.Truef(t, allows(from, to), "the picture has an arrow from %s to %s", from, to)
					arrows++
				}
			}
		}
	}
	require.Greater(t, arrows, 15, "the arrows are found")
}

func nodes(side string) (all []string) {
	for name := range strings.SplitSeq(side, "&") {
		all = append(all, strings.Trim(strings.TrimSpace(name), "()[]\" "))
	}
	return all
}

// allows reports whether the table has an import that an arrow of the picture
// stands for, or the arrow leaves the repository.
func allows(from, to string) bool {
	folders := map[string]string{"caddymodule": "caddymodule", "rooms": "internal/api/mount", "comfy": "internal/api/comfy", "comfyv2": "internal/api/comfyv2", "ops": "internal/api/ops", "plain": "internal/api/plain", "pull": "internal/api/pull", "sdapi": "internal/api/sdapi"}
	folder := func(name string) string {
		if f := folders[name]; f != "" {
			return f
		}
		return "internal/" + name
	}
	if slices.Contains([]string{"clients", "ComfyUI"}, from) || to == "ComfyUI" || from == "comfyui" && to == "agent" {
		return true
	}
	return slices.ContainsFunc(mayImport[folder(from)], func(a string) bool { return within(folder(to), a) }) || within(folder(to), folder(from))
}

// Each test that a page names as the holder of a promise exists.
func TestPages(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	known := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			known[string(match[1])] = true
		}
		return err
	}))
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	atLeast := map[string]int{"security-tests.md": 50, "reliability.md": 40, "testing.md": 5, "scheduling.md": 8, "placement.md": 4}
	for _, path := range must.Get(filepath.Glob("../docs/*.md"))(t) {
		page := filepath.Base(path)
		named := names.FindAllSubmatch(must.Get(os.ReadFile(path))(t), -1)
		require.GreaterOrEqual(t, len(named), atLeast[page], page)
		delete(atLeast, page)
		for _, match := range named {
			require.True(t, known[string(match[1])], "%s names %s, which is not there", page, match[1])
		}
	}
	require.Empty(t, atLeast, "pages that are not there")
}

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

// The workspace builds everything with the newest version that any of its modules names. Where
// all name the same, what is tested here is what each go.mod pins: the hub as xcaddy builds it,
// the images, and a bot bridge that somebody builds by itself.
func TestModulesAgree(t *testing.T) {
	t.Parallel()
	versions := func(folder string) map[string]string {
		text := must.Get(os.ReadFile(filepath.Join("..", folder, "go.mod")))(t)
		all := map[string]string{}
		for _, found := range requirement.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = found[2]
		}
		return all
	}
	hub := versions(".")
	require.Greater(t, len(hub), 30, "the versions are found")
	for _, folder := range []string{"botbridge", "botbridge/world"} {
		both := 0
		for module, version := range versions(folder) {
			if hub[module] != "" {
				both++
				require.Equal(t, hub[module], version, "%s: %s", folder, module)
			}
		}
		require.Greater(t, both, 15, folder)
	}
}
