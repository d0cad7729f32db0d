package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^```(?:sh|bash|console)\n(.*?)^```$")
	// ours is a program of ours with its arguments, up to what the shell takes for itself.
	ours = regexp.MustCompile(`(?:^|[;&|(]|\bdo |\buntil )\s*(?:sudo )?(?:\./|bin/|/usr/local/bin/)?(caddy comfyhub[a-z-]*|agent|botbridge)((?: +(?:"[^"]*"|'[^']*'|[^\s"'|;&<>()])+)+)`)
	// target is a target of the Makefile.
	target = regexp.MustCompile(`(?m)^make ([a-z-]+)`)
)

// commandsOf returns the commands of our programs in a page, as words.
func commandsOf(page string) (commands [][]string) {
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			for _, found := range ours.FindAllStringSubmatch(line, -1) {
				commands = append(commands, append(strings.Fields(found[1]), strings.Fields(found[2])...))
			}
		}
	}
	return commands
}

func TestCommandsOf(t *testing.T) {
	t.Parallel()
	page := "```sh\nuntil caddy comfyhub status | grep -q idle; do sleep 1; done\n" +
		"./caddy comfyhub-token add attic > token   # caddy comfyhub none\ninstall -m 0755 bin/agent /x\n\tagent run \\\n  --join \"a b\" &\n```\ncaddy comfyhub prose\n"
	require.Equal(t, [][]string{
		{"caddy", "comfyhub", "status"}, {"caddy", "comfyhub-token", "add", "attic"}, {"agent", "run", "--join", `"a`, `b"`},
	}, commandsOf(page))
}

// Each command of our programs that the docs show is one that they have, with flags that they
// have; so is each target of make.
func TestCommandsInDocs(t *testing.T) {
	t.Parallel()
	set := programstest.Built(t)
	program := map[string]string{"caddy": set.Caddy, "agent": set.Agent, "botbridge": set.Bridge}
	pages := must.Get(filepath.Glob("../docs/*.md"))(t)
	makefile := must.Get(os.ReadFile("../Makefile"))(t)
	shown := 0
	for _, name := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		page := must.Get(os.ReadFile(name))(t)
		for _, found := range target.FindAllStringSubmatch(string(page), -1) {
			require.Regexp(t, `(?m)^`+found[1]+`( [a-z%-]+)*:|^`+strings.SplitN(found[1], "-", 2)[0]+`-%:`, string(makefile), "%s: make %s", name, found[1])
		}
		for _, words := range commandsOf(string(page)) {
			if words[0] == "agent" && words[1] == "service" {
				continue // on Windows only
			}
			shown++
			// Flags are read before --help is, so that an unknown one is an error.
			said, err := exec.Command(program[words[0]], append(words[1:len(words):len(words)], "--help")...).CombinedOutput() // #nosec G204 -- our own pages
			require.NoError(t, err, "%s: %s\n%s", name, strings.Join(words, " "), said)
			named := 2 // the program and its command
			if words[0] == "caddy" {
				named = 3
			}
			require.Contains(t, string(said), "Usage:\n  "+strings.Join(words[:named], " "), "%s: %s", name, strings.Join(words, " "))
		}
	}
	require.Greater(t, shown, 15)
}
