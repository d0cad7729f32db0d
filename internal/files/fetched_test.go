package files

import (
	"encoding/base64"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Embedded(t))
	s.spool = t.TempDir()
	content := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 92)
	f := must(s.Fetch(t.Context(), strings.NewReader(content), 100))
	require.EqualValues(t, 100, f.Size)
	for range 2 {
		require.Equal(t, content, string(must(io.ReadAll(f.Content()))))
	}
	e := must(ReadDataURL("data:;base64,"+base64.StdEncoding.EncodeToString([]byte(content)), 100))
	require.Equal(t, e.Ref, f.Ref, "a file has one name, however it came")
	f.Close()

	for name, c := range map[string]struct {
		content io.Reader
		wrong   error
	}{
		"too large":  {strings.NewReader(content + "x"), ErrTooLarge},
		"endless":    {io.MultiReader(strings.NewReader(content), endless{}), ErrTooLarge},
		"empty":      {strings.NewReader(""), ErrNoMedia},
		"a page":     {strings.NewReader("<html>"), ErrNoMedia},
		"broken off": {brokenReader{strings.NewReader(content)}, errBroken},
	} {
		_, err := s.Fetch(t.Context(), c.content, 100)
		require.ErrorIs(t, err, c.wrong, name)
	}
	require.Empty(t, must(os.ReadDir(s.spool)))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
