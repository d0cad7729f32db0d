package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// image is a line that names an image with a tag.
var image = regexp.MustCompile(`(?m)^(?:FROM| *image:) +([a-z0-9./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?(?: .*)?$`)

func filesWithImages(t *testing.T) []string {
	t.Helper()
	files := []string{"compose.yaml"}
	for _, pattern := range []string{"*.Dockerfile", "kubernetes/*.yaml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		files = append(files, found...)
	}
	return files
}

// Whoever moves a tag does not change what is built or run here.
func TestImagesAreNamedByDigest(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, file := range filesWithImages(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range image.FindAllStringSubmatch(string(text), -1) {
			require.NotEmpty(t, found[2], "%s: %s has no digest", file, found[1])
			if digests[found[1]] == "" {
				digests[found[1]] = found[2]
			}
			require.Equal(t, digests[found[1]], found[2], "%s: %s", file, found[1])
		}
	}
	require.Len(t, digests, 5)
}

func TestPinRenewsDigests(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh here")
	}
	folder := t.TempDir()
	renewed := "@sha256:" + strings.Repeat("ab", 32)
	docker := "#!/bin/sh\n[ \"$1 $2 $3\" = 'buildx imagetools inspect' ] && echo " + renewed[1:] + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte(docker), 0o700))
	for _, file := range filesWithImages(t) {
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		pinned := filepath.Join(folder, filepath.Base(file))
		require.NoError(t, os.WriteFile(pinned, before, 0o600))
		cmd := exec.CommandContext(t.Context(), "sh", "pin.sh", pinned)
		cmd.Env = append(os.Environ(), "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		after, err := os.ReadFile(pinned)
		require.NoError(t, err)
		require.Equal(t, regexp.MustCompile("@sha256:[0-9a-f]{64}").ReplaceAllString(string(before), renewed), string(after))
	}
}
